"""Speculative decoding: several tokens in one step where they can be guessed."""

from llamina.engine.speculation.agreement import common
from llamina.engine.speculation.drafting import Drafting, Speculate, check_mode
from llamina.engine.speculation.pace import Costs

__all__ = ["Costs", "Drafting", "Speculate", "check_mode", "common"]
