"""What is known of the request under way: its id, and what its log line and its trace tell of it."""

import re
from contextvars import ContextVar
from dataclasses import dataclass, field

from llamina.server.ids import new_id

GIVEN = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass
class Record:
    """One request. Never what was asked or answered."""

    id: str = field(default_factory=lambda: new_id("req_"))
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @classmethod
    def of(cls, given: str | None) -> "Record":
        """With the id that the client gives, if it can be one."""
        return cls(given) if given is not None and GIVEN.fullmatch(given) else cls()


_RECORD: ContextVar[Record | None] = ContextVar("llamina_request", default=None)


def begin(record: Record) -> None:
    """All that this task and those it starts do is for this request."""
    _RECORD.set(record)


def current() -> Record | None:
    """The request under way; None outside of one."""
    return _RECORD.get()
