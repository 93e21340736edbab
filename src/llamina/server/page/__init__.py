"""The page at `/`: a chat in the browser. Its files are in the wheel; it needs nothing but the server's APIs."""
