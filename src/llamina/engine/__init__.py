"""Requests, the scheduler, the step that advances sequences, and what callers ask for."""

from llamina.engine.delta import Delta
from llamina.engine.embedded import Embedded
from llamina.engine.engine import Engine
from llamina.engine.progress import progress
from llamina.engine.request import Request
from llamina.engine.runner.load import load
from llamina.engine.sequence import Sequence
from llamina.engine.snapshot.file import SnapshotInfo, snapshot_info
from llamina.engine.snapshot.session import Session
from llamina.engine.tasks.chat import ChatCompletion, ChatDelta, ChatSettings, Turn
from llamina.engine.tasks.completion import Completion, Usage
from llamina.engine.tasks.generation import Generation
from llamina.engine.tasks.manual import ManualSequence
from llamina.engine.tasks.scoring import Score
from llamina.engine.tasks.tools import ToolRun

__all__ = [
    "ChatCompletion",
    "ChatDelta",
    "ChatSettings",
    "Completion",
    "Delta",
    "Embedded",
    "Engine",
    "Generation",
    "ManualSequence",
    "Request",
    "Score",
    "Sequence",
    "Session",
    "SnapshotInfo",
    "ToolRun",
    "Turn",
    "Usage",
    "load",
    "progress",
    "snapshot_info",
]
