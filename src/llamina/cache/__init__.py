"""What sequences keep between steps."""

from .pages import Lease, Pages

__all__ = ["Lease", "Pages"]
