"""Requests, the scheduler, and the step that advances them."""

from .engine import Engine
from .generation import Generation
from .load import load
from .request import Event, Request
from .result import Completion, Usage

__all__ = ["Completion", "Engine", "Event", "Generation", "Request", "Usage", "load"]
