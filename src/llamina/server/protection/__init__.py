"""What stands between the network and the APIs: pure ASGI middlewares, one idea per file."""
