"""A plugin of the `llm` tool (https://llm.datasette.io): the models of `llamina list` are its models `llamina/NAME`."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import llm
from llm.models import EmbeddingModel
from llm.parts import StreamEvent, TextPart, ToolCallPart, ToolResultPart
from pydantic import Field, create_model

from llamina import hub
from llamina.cli.options import locate, open_file
from llamina.cli.sampling import NUMBER_NAMES, NUMBERS
from llamina.cli.terminal import Meter
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.engine import Engine

PREFIX = "llamina/"
MAX_TOKENS = 1024  # of an answer, as in `llamina chat`

Options = create_model(
    "Options",
    __base__=llm.Options,
    max_tokens=(int, Field(default=MAX_TOKENS, ge=1, description="Most tokens of an answer.")),
    context=(int | None, Field(default=None, ge=2, description="Context size in tokens.")),
    **{  # type: ignore[call-overload]  # the rest are those of `llamina run`
        name: ((float if kind is float else int) | None, Field(default=None, description=text))
        for name, (_, kind, text) in zip(NUMBER_NAMES, NUMBERS, strict=True)
    },
)


class LlaminaModel(llm.Model):
    """A model that answers. It is fetched if it must be, and loaded with the first prompt."""

    can_stream = True
    supports_schema = True
    supports_tools = True

    def __init__(self, name: str) -> None:
        self.model_id = PREFIX + name
        self.Options = Options
        self._name = name
        self._engine: Engine | None = None
        self._context: int | None = None

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[Any]:
        """Pieces of the answer, as they come also if they need not."""
        options = prompt.options.model_dump(exclude_none=True)
        engine = self._open(options.pop("context", None))
        if prompt.schema:
            options["json_schema"] = prompt.schema
        if engine.tokenizer.chat_template is None:
            text = engine.stream("\n".join(_plain(message) for message in prompt.messages), **options)
            yield from (delta.text for delta in text)
            used = text.usage
        else:
            tools = [_tool(tool) for tool in prompt.tools]
            turn = engine.stream_chat(_messages(prompt.messages), tools=tools, **options)
            for delta in turn:
                if delta.reasoning:
                    yield StreamEvent(type="reasoning", chunk=delta.reasoning)
                if delta.text:
                    yield StreamEvent(type="text", chunk=delta.text)
            for call in turn.result().tool_calls:
                yield StreamEvent(type="tool_call_name", chunk=call.name, tool_call_id=call.id)
                yield StreamEvent(type="tool_call_args", chunk=call.arguments, tool_call_id=call.id)
                response.add_tool_call(llm.ToolCall(call.name, json.loads(call.arguments or "{}"), call.id))
            used = turn.usage
        response.set_usage(input=used.prompt_tokens, output=used.completion_tokens)

    def _open(self, context: int | None) -> "Engine":
        if self._engine is None or context != self._context:
            if self._engine is not None:
                self._engine.close()
            self._engine, self._context = _load(self._name, context), context
        return self._engine


class LlaminaEmbeddings(EmbeddingModel):
    """A model that makes vectors."""

    batch_size = 32

    def __init__(self, name: str) -> None:
        self.model_id = PREFIX + name
        self._name = name
        self._engine: Engine | None = None

    def embed_batch(self, items: Iterable[str | bytes]) -> Iterator[list[float]]:
        """A vector of length 1 for each text."""
        self._engine = self._engine or _load(self._name, None)
        yield from self._engine.embed([str(item) for item in items]).tolist()


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Those on this machine, and those of the catalogue, which are fetched when they are asked for."""
    for name, kind in _known().items():
        if kind != "embedding":
            register(LlaminaModel(name))


@llm.hookimpl
def register_embedding_models(register: Callable[..., None]) -> None:
    """Those that the catalogue says to be such, and others that it does not know."""
    for name, kind in _known().items():
        if kind in ("embedding", None):
            register(LlaminaEmbeddings(name))


def _known() -> dict[str, str | None]:
    """The kind of each model by its name, if it is known."""
    known: dict[str, str | None] = {entry.name: entry.kind for entry in hub.CATALOGUE.values()}
    return known | {model.name: model.entry.kind if model.entry else None for model in hub.models()}


def _load(name: str, context: int | None) -> "Engine":
    from llamina.engine import load

    file = open_file(locate(name))
    with Meter("parts") as meter:
        return load(file, progress=meter, context=context)


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, llm.Tool):
        raise RequestError(f"{tool.name} is a tool of another provider's server: give functions as tools", "tools")
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema or {}}
    return {"type": "function", "function": function}


def _plain(message: Any) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def _messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """`llm`'s messages as those of a chat template. A system message that comes again is left out."""
    found: list[dict[str, Any]] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        found += [
            {"role": "tool", "name": part.name, "tool_call_id": part.tool_call_id, "content": part.output}
            for part in results
        ]
        if results:
            continue
        entry = {"role": message.role, "content": _plain(message)}
        if calls := [part for part in message.parts if isinstance(part, ToolCallPart)]:
            entry["tool_calls"] = [_call(part) for part in calls]
        if message.role != "system" or entry not in found:
            found.append(entry)
    return found


def _call(part: Any) -> dict[str, Any]:
    function = {"name": part.name, "arguments": json.dumps(part.arguments)}
    return {"id": part.tool_call_id, "type": "function", "function": function}
