"""Plans: forward passes recorded once, adapted, divided, looked through for what can be fused, and printed."""

from llamina.plan.adapt import adapt, adaptable
from llamina.plan.record import Plan, record
from llamina.plan.show import describe, show

__all__ = ["Plan", "adapt", "adaptable", "describe", "record", "show"]
