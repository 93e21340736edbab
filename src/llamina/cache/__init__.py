"""What sequences keep between steps."""

from llamina.cache.pages import Lease, Pages

__all__ = ["Lease", "Pages"]
