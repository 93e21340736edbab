"""Recording a forward pass once, and looking at what was recorded."""

from .record import Plan, record
from .show import describe, show

__all__ = ["Plan", "describe", "record", "show"]
