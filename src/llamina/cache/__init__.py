"""What sequences keep between steps: pages of keys and values, window pages, and slots of recurrent states."""

from llamina.cache.pages import Copies, Lease, Pages
from llamina.cache.window import WindowPool

__all__ = ["Copies", "Lease", "Pages", "WindowPool"]
