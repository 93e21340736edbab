"""Requests, the scheduler, and the step that advances them."""

from llamina.engine.bars import progress
from llamina.engine.dispatch import ToolRun
from llamina.engine.engine import Engine
from llamina.engine.generation import Generation
from llamina.engine.load import load
from llamina.engine.readings import Score
from llamina.engine.request import Event, Request
from llamina.engine.result import Completion, Usage
from llamina.engine.session import Session
from llamina.engine.turn import ChatCompletion, Talk, Turn

__all__ = [
    "ChatCompletion",
    "Completion",
    "Engine",
    "Event",
    "Generation",
    "Request",
    "Score",
    "Session",
    "Talk",
    "ToolRun",
    "Turn",
    "Usage",
    "load",
    "progress",
]
