"""The model's turn in a conversation: its answer taken apart as it comes."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from llamina.chat import ChatEvent, Collected, Format, Parser, ToolCall, Tools, choose
from llamina.chat.choice import ToolChoice, call_grammar, chosen, lazy_grammar
from llamina.chat.messages import adapted
from llamina.engine.generation import Generation
from llamina.engine.result import Completion
from llamina.errors import InvalidGrammar
from llamina.grammar import KINDS, Source
from llamina.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llamina.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class ChatCompletion(Completion):
    """A finished answer: `text` is for the reader, without the model's reasoning and its calls of tools."""

    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        """The answer as a message, to go on with the conversation."""
        found: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.tool_calls:
            found["tool_calls"] = [call.message() for call in self.tool_calls]
        return found


@dataclass(frozen=True, slots=True)
class Talk:
    """How a conversation is put to the model, and what is looked for in its answers."""

    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = False  # whether an answer that must call a tool may call several
    reasoning: bool | Sequence[str] = True  # False: left in the text; or two markers around it
    format: str | Format | Sequence[str] | None = None  # a name, or two markers around JSON; None: the template's
    template_options: Mapping[str, Any] = field(default_factory=dict)  # variables of the template


class Turn:
    """Iterate over it for events; `result()` runs to the end and puts them together."""

    def __init__(self, generation: Generation, parser: Parser) -> None:
        self.generation = generation
        self._parser = parser
        self._events: deque[ChatEvent] = deque()
        self._collected = Collected()
        self._done = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChatEvent:
        while not self._events:
            if self._done:
                raise StopIteration
            self._read()
        return self._events.popleft()

    def _read(self) -> None:
        piece = next(self.generation, None)
        events = self._parser.finish() if piece is None else self._parser.push(piece)
        self._done = piece is None
        self._events.extend(events)
        for event in events:
            self._collected.add(event)

    def stop(self) -> None:
        """End after the step under way; may be called from a signal handler or another thread."""
        self.generation.stop()

    def close(self) -> None:
        """Stop here: nothing more is computed for it."""
        self.generation.close()

    def result(self) -> ChatCompletion:
        """Everything, after running what is left of it."""
        for _ in self:
            pass
        return chat_completion(self.generation.result(), self._collected)


def chat_completion(whole: Completion, found: Collected) -> ChatCompletion:
    """An answer, and what was found in it."""
    same = {name: getattr(whole, name) for name in Completion.__dataclass_fields__}
    return ChatCompletion(**same | {"text": found.text}, reasoning=found.reasoning, tool_calls=found.tool_calls)


def open_turn(engine: "Engine", messages: Sequence[Mapping[str, Any]], options: dict[str, Any]) -> Turn:
    """Put a conversation to the model."""
    prompt, options, parser = prepare(engine, messages, options)
    return Turn(engine.stream(prompt, **options), parser)


def prepare(
    engine: "Engine", messages: Sequence[Mapping[str, Any]], options: dict[str, Any]
) -> tuple[list[int], dict[str, Any], Parser]:
    """A conversation's prompt, the options of its request, and what reads the answer."""
    talk = Talk(**{name: options[name] for name in Talk.__dataclass_fields__ if name in options})
    options = {name: value for name, value in options.items() if name not in Talk.__dataclass_fields__}
    tools, must = chosen(Tools(talk.tools), talk.tool_choice)
    template = engine.tokenizer.chat_template_for(tools=len(tools) > 0)
    format = choose(template.source, talk.format, talk.reasoning, knows_tools=template.knows_tools)
    prompt = template.render(
        adapted(messages, template, format, tools),
        tools.described if template.knows_tools else None,
        **talk.template_options,
    )
    thinking = format.reasoning is not None and prompt.rstrip().endswith(format.reasoning[0])
    tokens = _control_tokens(engine.tokenizer, format)
    if must:
        known = format.reasoning is not None and (format.reasoning[0] in template.source or talk.reasoning is not True)
        thinks: Literal["no", "may", "must"] = "must" if thinking else "may" if known else "no"
        options |= {"lark": call_grammar(format, tools, tokens, thinks, talk.parallel_tool_calls)}
    elif len(tools) and not any(options.get(kind) is not None for kind in KINDS):
        options |= _lazy(engine, format, tools, tokens, thinking)
    return engine.chat_tokens(prompt), options | {"markers": format.markers}, Parser(format, tools, thinking)


def _lazy(engine: "Engine", format: Format, tools: Tools, tokens: Mapping[str, int], thinking: bool) -> dict[str, Any]:
    """The options of a request whose answer may call tools. Schemas that are no grammar are kept as far as they can be.

    That is names and types of arguments; a tool that is `strict` is refused instead.
    """
    try:
        if (found := lazy_grammar(format, tools, tokens, thinking)) is None:
            return {}
        engine.samplers.check(Source("lark", found[0]))
    except InvalidGrammar:
        loose = tools.loosened()
        if loose.described == tools.described:
            raise
        return _lazy(engine, format, loose, tokens, thinking)
    return {"lark": found[0], "triggers": found[1]}


def _control_tokens(tokenizer: Tokenizer, format: Format) -> dict[str, int]:
    """The markers that are tokens outside of the text."""
    found = {marker: tokenizer.token_id(marker) for marker in format.markers}
    return {marker: token for marker, token in found.items() if token is not None and tokenizer.is_special(token)}
