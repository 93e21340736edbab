"""The model's turn in a conversation: its answer parsed as it comes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from llamina.chat import ChatEvent, Collected, Content, Format, Parser, Reasoning, ToolCall, Tools, choose
from llamina.chat.messages import adapted
from llamina.chat.tool_choice import ToolChoice, call_grammar, chosen, lazy_grammar
from llamina.engine.delta import Delta, FinishReason
from llamina.engine.request import OPTIONS, SAMPLING, ReasoningLimit, check_names
from llamina.engine.tasks.completion import Completion, Usage
from llamina.engine.tasks.generation import Generation
from llamina.engine.tasks.media import content_of, in_parts, marked, prompt_of
from llamina.errors import InvalidGrammar, RequestError, check_whole
from llamina.grammar import KINDS, Source
from llamina.sampling import TokenLogprob
from llamina.tokenizer import ChatTemplate, Tokenizer

if TYPE_CHECKING:
    from llamina.engine.engine import Engine

Message = Mapping[str, Any]
Messages = Sequence[Message] | str


@dataclass(frozen=True, slots=True)
class ChatDelta:
    """A delta of the answer, and what the parser made of its text."""

    delta: Delta
    events: tuple[ChatEvent, ...] = ()

    @property
    def text(self) -> str:
        """New text for the reader."""
        return "".join(event.text for event in self.events if isinstance(event, Content))

    @property
    def reasoning(self) -> str:
        """New text of the model's reasoning."""
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.delta.tokens

    @property
    def logprobs(self) -> tuple[TokenLogprob | None, ...] | None:
        return self.delta.logprobs

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.delta.finish_reason

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ChatCompletion(Completion):
    """A finished answer: `text` is for the reader, without the model's reasoning and its calls of tools."""

    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        """The answer as a message, to go on with the conversation."""
        return _message(self.text, self.reasoning, self.tool_calls)


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How a conversation is put to the model, and what is looked for in its answers."""

    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = False  # whether an answer that must call a tool may call several
    reasoning: bool | Sequence[str] = True  # False: left in the text; or two markers around it
    reasoning_budget: int | None = None  # tokens of reasoning, after which it is ended; None: it ends by itself
    format: str | Format | Sequence[str] | None = None  # a name, or two markers around JSON; None: the template's
    template_options: Mapping[str, Any] = field(default_factory=dict)  # variables of the template


SETTINGS = ChatSettings.__dataclass_fields__.keys()
RESERVED = ("self", "messages", "tools")  # what a template's options may not replace


class AnswerParser:
    """Deltas in, chat deltas out; what they come to is put together."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._collected = Collected()

    def push(self, delta: Delta) -> ChatDelta:
        events = self._parser.push(delta.text) if delta.text else []
        for event in events:
            self._collected.add(event)
        return ChatDelta(delta, (*events, *(self._finish() if delta.finish_reason is not None else ())))

    def _finish(self) -> list[ChatEvent]:
        """What the parser has held back, once nothing more can come."""
        events = self._parser.finish()
        for event in events:
            self._collected.add(event)
        return events

    def message(self) -> dict[str, Any]:
        """The answer so far, as a message."""
        answer = self._collected
        return _message(answer.text, answer.reasoning, answer.tool_calls)

    def completion(self, whole: Completion) -> ChatCompletion:
        self._finish()
        answer = self._collected
        same = {name: getattr(whole, name) for name in Completion.__dataclass_fields__}
        return ChatCompletion(**same | {"text": answer.text}, reasoning=answer.reasoning, tool_calls=answer.tool_calls)


def _message(text: str, reasoning: str, tool_calls: Sequence[ToolCall]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if tool_calls:
        message["tool_calls"] = [call.message() for call in tool_calls]
    return message


class Turn:
    """Iterate over it for chat deltas; `result()` runs to the end and puts them together."""

    def __init__(self, generation: Generation, parser: Parser) -> None:
        self.generation = generation
        self._answer = AnswerParser(parser)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChatDelta:
        """The next chat delta; the last has a finish reason. Raises what ended the sequence."""
        return self._answer.push(next(self.generation))

    def stop(self) -> None:
        """End after the step under way; may be called from a signal handler or another thread."""
        self.generation.stop()

    def close(self) -> None:
        """Stop here: nothing more is computed for it."""
        self.generation.close()

    @property
    def usage(self) -> Usage:
        return self.generation.usage

    def message(self) -> dict[str, Any]:
        """The answer so far, as a message."""
        return self._answer.message()

    def result(self) -> ChatCompletion:
        """Everything, after running what is left of it."""
        for _ in self:
            pass
        return self._answer.completion(self.generation.result())


def conversation(messages: Messages) -> list[dict[str, Any]]:
    """Messages as dictionaries; a text alone is the user's. Text parts of OpenAI's API become plain text, and parts of
    messages with pictures or sounds are of three kinds, `text`, `image` and `audio`.

    Raises RequestError for anything else.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence):
        raise RequestError(f"messages is {messages!r}: it must be a text or a list of messages", "messages")
    return [_plain(message) for message in messages]


def _plain(message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"a message is {message!r}: it must be a role and its content", "messages")
    plain = dict(message)
    _check_calls(plain.get("tool_calls"))
    return plain | {"content": content_of(plain["content"])} if "content" in plain else plain


def _check_calls(calls: object) -> None:
    """Raise RequestError for calls of tools that no template could write."""
    if calls is not None and not (isinstance(calls, Sequence) and not isinstance(calls, str)):
        raise RequestError(f"tool_calls is {type(calls).__name__}: a list of calls is expected", "messages")
    for call in calls or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
        if not named or not isinstance(function.get("arguments", ""), str | Mapping):  # type: ignore[union-attr]
            message = "tool_calls has a call without a function: its name, and arguments as JSON text, are expected"
            raise RequestError(message, "messages")


def open_turn(engine: "Engine", messages: Messages, options: dict[str, Any], **also: Any) -> Turn:
    """Put a conversation to the model."""
    prompt, options, parser = prepare(engine, messages, options)
    return Turn(engine.stream(prompt, **options, **also), parser)


def prepare(engine: "Engine", messages: Messages, options: dict[str, Any]) -> tuple[list[int], dict[str, Any], Parser]:
    """A conversation's prompt, the options of its request, and the parser of the answer."""
    check_names(options, OPTIONS | SAMPLING | SETTINGS)
    settings = ChatSettings(**{name: options[name] for name in SETTINGS if name in options})
    options = {name: value for name, value in options.items() if name not in SETTINGS}
    if taken := [name for name in RESERVED if name in settings.template_options]:
        raise RequestError(f"template_options has {taken[0]}: that is not an option of a template", "template_options")
    tools, must = chosen(Tools(settings.tools), settings.tool_choice)
    prompt, template, format, media = render(engine, messages, settings, tools)
    thinking = format.reasoning is not None and prompt.rstrip().endswith(format.reasoning[0])
    tokens = _control_tokens(engine.tokenizer, format)
    if must:
        marks = format.reasoning
        known = marks is not None and (marks[0] in template.source or settings.reasoning is not True)
        thinks: Literal["no", "may", "must"] = "must" if thinking else "may" if known else "no"
        options |= {"lark": call_grammar(format, tools, tokens, thinks, settings.parallel_tool_calls)}
    elif len(tools) and not any(options.get(kind) is not None for kind in KINDS):
        options |= _lazy(engine, format, tools, tokens, thinking)
    if settings.reasoning_budget is not None:
        options |= {"reasoning_limit": _limit(engine.tokenizer, format, settings.reasoning_budget, thinking)}
    return prompt_of(engine, prompt, media), options | {"markers": format.markers}, Parser(format, tools, thinking)


def _limit(tokenizer: Tokenizer, format: Format, budget: int, thinking: bool) -> ReasoningLimit:
    """Where reasoning is ended; `thinking`: the prompt has opened it. Raises RequestError."""
    check_whole("reasoning_budget", budget, 0)
    if format.reasoning is None:
        message = "reasoning_budget is given and reasoning is left in the text: leave one of them out"
        raise RequestError(message, "reasoning_budget")
    opening, end = format.reasoning
    closing = end if format.messages else f"\n{end}\n\n"
    tokens = tokenizer.encode(closing, parse_special=True, continued=True)
    return ReasoningLimit(budget, "" if thinking else opening, (end, *format.breaks), tokens)


def render(
    engine: "Engine", messages: Messages, settings: ChatSettings, tools: Tools
) -> tuple[str, ChatTemplate, Format, dict[str, Any]]:
    """A conversation as text, the template that it was rendered by, the format of answers, and media by mark."""
    template = engine.tokenizer.chat_template_for(tools=len(tools) > 0)
    format = choose(template.source, settings.format, settings.reasoning, knows_tools=template.knows_tools)
    said, media = marked(conversation(messages))
    said = adapted(said, template, format, tools)
    prompt = template.render(
        in_parts(said) if template.takes_parts else said,
        tools.described if template.knows_tools else None,
        **settings.template_options,
    )
    return prompt, template, format, media


def _lazy(engine: "Engine", format: Format, tools: Tools, tokens: Mapping[str, int], thinking: bool) -> dict[str, Any]:
    """The options of a request whose answer may call tools. Schemas that are no grammar are kept as far as they can be.

    That is names and types of arguments; a tool that is `strict` is refused instead.
    """
    try:
        if (lazy := lazy_grammar(format, tools, tokens, thinking)) is None:
            return {}
        engine.runner.samplers.check(Source("lark", lazy[0]))
    except InvalidGrammar:
        loose = tools.loosened()
        if loose.described == tools.described:
            raise
        return _lazy(engine, format, loose, tokens, thinking)
    return {"lark": lazy[0], "triggers": lazy[1]}


def _control_tokens(tokenizer: Tokenizer, format: Format) -> dict[str, int]:
    """The markers that are control tokens."""
    tokens = {marker: tokenizer.token_id(marker) for marker in format.markers}
    return {marker: token for marker, token in tokens.items() if token is not None and tokenizer.is_special(token)}
