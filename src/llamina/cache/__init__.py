"""What sequences keep between steps."""

from llamina.cache.near import Near
from llamina.cache.pages import Copy, Lease, Pages

__all__ = ["Copy", "Lease", "Near", "Pages"]
