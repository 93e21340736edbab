"""The server's log on stderr: lines of text, or of JSON."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import msgspec


class JsonLines(logging.Formatter):
    """A JSON object in a line; what a record has as `fields` beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up(level: str, format: Literal["text", "json"]) -> None:
    """Send the log of the server to stderr; that of libraries only from warnings on."""
    stream = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    stream.setFormatter(JsonLines() if format == "json" else text)
    logging.basicConfig(level=logging.WARNING, handlers=[stream], force=True)
    logging.getLogger("llamina").setLevel(level.upper())
