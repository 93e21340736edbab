"""What sequences keep between steps."""

from llamina.cache.pages import Copy, Lease, Pages

__all__ = ["Copy", "Lease", "Pages"]
