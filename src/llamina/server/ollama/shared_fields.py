"""What `/api/chat` and `/api/generate` have in common."""

from typing import Any

import msgspec

from llamina.chat import choose
from llamina.server.config import Limits
from llamina.server.errors import ApiError
from llamina.server.model import Model
from llamina.server.models import Entry
from llamina.server.ollama.modelfile import Modelfile
from llamina.server.ollama.options import constraint, seconds, thinking
from llamina.server.openai.sampling import check_limits


class GenerationRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of both requests. None: the model's default."""

    model: str
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    keep_alive: float | str | None = None
    think: bool | str | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    @property
    def streams(self) -> bool:
        return self.stream is not False

    @property
    def keeps(self) -> float | None:
        """How long the model is kept after this, in seconds. Raises ApiError."""
        return seconds(self.keep_alive)

    def engine_options(self, entry: Entry, model: Model, modelfile: Modelfile, limits: Limits) -> dict[str, Any]:
        """The engine's options. Raises ApiError for what is over a limit or not done."""
        options = modelfile.options(self.options)
        options.check_context(model.info.context)
        given: dict[str, Any] = {"max_tokens": None, **entry.profile.sampling, **options.engine_options()}
        given |= constraint(self.format)
        if self.truncate is not None:
            given["truncate"] = self.truncate
        if self.shift is not None:
            given["context_shift"] = self.shift
        if self.logprobs:
            given["logprobs"] = self._top_logprobs(limits.top_logprobs)
        check_limits(given, limits)
        return given

    def template_options(self, model: Model) -> dict[str, Any]:
        """Variables of the chat template, as an option of the engine. Raises ApiError."""
        found = thinking(self.think, able_to_think(model.info.template), self.model)
        return {"template_options": found} if found else {}

    def _top_logprobs(self, most: int) -> int:
        n = self.top_logprobs or 0
        if not 0 <= n <= most:
            raise ApiError(400, f"top_logprobs is {n}: must be a number from 0 to {most}", param="top_logprobs")
        return n


def able_to_think(template: str) -> bool:
    """Whether a chat template knows of reasoning."""
    if not template:
        return False
    format = choose(template)
    return bool(format.messages) or (format.reasoning is not None and format.reasoning[0] in template)
