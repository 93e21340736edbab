"""The page at `/`: a chat in the browser. Its files are in the wheel, and it needs nothing but the server's own APIs."""
