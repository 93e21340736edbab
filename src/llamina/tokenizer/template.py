"""Chat templates: Jinja as Hugging Face runs it, in a sandbox."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2

from llamina.errors import TemplateError
from llamina.tokenizer.sandbox import Sandbox, bounds, check_size

Message = Mapping[str, Any]


class ChatTemplate:
    """A template, compiled once. Rendering neither changes the messages nor remembers them."""

    def __init__(self, source: str, **tokens: str) -> None:
        self.source = source
        self._tokens = tokens
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"the chat template is not valid Jinja: line {error.lineno}: {error.message}", "chat_template"
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The prompt of a conversation; keywords are variables of the template (`enable_thinking`, ...)."""
        values = {
            # Some templates append to lists they are given.
            "messages": copy.deepcopy(list(messages)),
            "tools": copy.deepcopy(list(tools)) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._tokens,
            **copy.deepcopy(kwargs),
        }
        try:
            with bounds():
                return self._rendered(values)
        except TemplateError:
            raise
        except _Refusal as error:
            raise TemplateError(f"the chat template refuses these messages: {error}", "messages") from error
        except Exception as error:  # whatever a template may do wrong
            raise TemplateError(f"the chat template failed{_line(error)}: {error}", "messages") from error

    def _rendered(self, values: Mapping[str, Any]) -> str:
        """The text, made piece by piece."""
        pieces, size = [], 0
        for piece in self._template.generate(values):
            size += len(piece)
            check_size(size)
            pieces.append(piece)
        return "".join(pieces)

    @property
    def knows_tools(self) -> bool:
        """Whether it tells the model about tools."""
        return "tools" in self.source

    @cached_property
    def takes_parts(self) -> bool:
        """Whether it wants content as a list of parts; most want it as text."""
        said = [{"role": "user", "content": "needle"}]
        parts = [{"role": "user", "content": [{"type": "text", "text": "needle"}]}]
        return "needle" not in self._tried(said) and "needle" in self._tried(parts)

    def _tried(self, messages: Sequence[Message]) -> str:
        """The prompt of a conversation, or nothing."""
        try:
            return self.render(messages)
        except TemplateError:
            return ""

    @cached_property
    def takes_objects(self) -> bool:
        """Whether it wants the arguments of calls as objects; the others want them as JSON text."""
        function = {"name": "some_tool", "arguments": '{"needle": 1}'}
        call = {"id": "123456789", "type": "function", "function": function}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "1", "name": "some_tool", "tool_call_id": "123456789"},
        ]
        tool = {"name": "some_tool", "description": "", "parameters": {"type": "object", "properties": {}}}
        try:
            text = self.render(messages, [{"type": "function", "function": tool}])
        except TemplateError:
            return True
        return '{"needle": 1}' not in text.replace("{{", "")  # braces around it: it is not taken for an object


class _Refusal(Exception):
    """A template called `raise_exception`."""


def _environment() -> Sandbox:
    environment = Sandbox()
    environment.filters["tojson"] = _to_json
    environment.filters["safe"] = lambda value: value  # Markup would escape whatever it is joined with
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, and knows no generators, such as `map` makes.
    value = list(value) if isinstance(value, Iterator) else value
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _line(error: Exception) -> str:
    """The line of the template where an error arose: Jinja rewrites tracebacks to name it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" in line {line}"
