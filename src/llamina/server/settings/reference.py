"""The reference of all settings as Markdown, made from the table of them; `docs/serving.md` has it."""

from collections.abc import Iterable

from llamina.server.config import ModelProfile
from llamina.server.settings.table import Setting, settings


def markdown() -> str:
    """The settings of a server, then those of a model's profile."""
    server = ["| key | flag | variable | default | |", "| --- | --- | --- | --- | --- |"]
    server += [
        f"| `{s.key}` | `{s.flag}` | `{s.variable}` | {_code(s.default_text)} | {_cell(s.about)} |" for s in settings()
    ]
    models = ["| key | |", "| --- | --- |", *(f"| `{s.key}` | {_cell(s.about)} |" for s in _ordered())]
    return "\n".join([*server, "", "Keys of a model's profile:", "", *models]) + "\n"


def _ordered() -> Iterable[Setting]:
    """A profile's own keys first."""
    found = list(settings(ModelProfile))
    own = ModelProfile.__annotations__
    return [s for s in found if s.path[0] in own] + [s for s in found if s.path[0] not in own]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
