"""What a server keeps: objects in a database, contents of files beside it."""

from llamina.server.store.store import Kept, Page, Store

__all__ = ["Kept", "Page", "Store"]
