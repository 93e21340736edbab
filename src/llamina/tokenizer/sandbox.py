"""Jinja for templates that come with models: no way out of the sandbox, and bounds on time and size.

Loops, macros and calls count the time; operators, filters and joins check sizes before they make anything large.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from llamina.errors import TemplateError

MAX_SECONDS = 5.0  # of the processor
MAX_SIZE = 1 << 25  # characters of a text, items of a list
MAX_MADE = 1 << 28  # of all that is made on the way
MAX_POWER = 1024  # of an exponent, and bits of what it is the exponent of
WIDE = re.compile(r"%[^a-zA-Z%]*(\d{5,}|\*)")  # a format that pads by a lot, or by as much as it is told


def _too_much(what: str) -> TemplateError:
    return TemplateError(f"the chat template is stopped: it {what}", "messages")


class _Budget:
    """What is left to one rendering."""

    def __init__(self) -> None:
        self.end = time.thread_time() + MAX_SECONDS
        self.made = 0  # characters and items, by operators, filters and methods


_BUDGET: ContextVar[_Budget] = ContextVar("llamina_template_budget")


@contextmanager
def bounds() -> Iterator[None]:
    """Rendering within this context raises TemplateError when the thread computes for too long, or makes too much."""
    token = _BUDGET.set(_Budget())
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_time() -> None:
    if time.thread_time() > _BUDGET.get().end:
        raise _too_much("takes too long")


def _count(made: Any) -> Any:
    """What was made, unless it is too large, or too much with all that was made before."""
    if isinstance(made, str | list):
        check_size(len(made))
        if (budget := _BUDGET.get(None)) is not None:  # none while a template is compiled, and constants are computed
            budget.made += len(made)
            if budget.made > MAX_MADE:
                raise _too_much(f"makes more than {MAX_MADE} characters on its way")
    return made


def check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise _too_much(f"makes something larger than {MAX_SIZE}")


def joined(parts: Iterable[str]) -> str:
    """The texts as one, unless that is too large."""
    texts = list(parts)
    check_size(sum(map(len, texts)))
    return str(_count("".join(texts)))


class Bounds(Extension):
    """What the instrumented template calls; a template cannot put anything in its place."""

    def tick(self) -> str:
        check_time()
        return ""

    def concatenate(self, *parts: Any) -> str:
        """The operator `~`."""
        return joined(map(str, parts))


class Generation(Extension):
    """`{% generation %}` marks what the assistant says, for training; here it is part of the text."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Instrument(NodeTransformer):
    """Puts a tick into every loop and macro, and makes `~` a call."""

    def _ticking(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(_call("tick", [], node.lineno), lineno=node.lineno))
        return node

    visit_For = visit_Macro = visit_CallBlock = _ticking

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _call("concatenate", node.nodes, node.lineno)


def _call(name: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    method = nodes.ExtensionAttribute(Bounds.identifier, name, lineno=line)
    return nodes.Call(method, args, [], None, None, lineno=line)


class Sandbox(SandboxedEnvironment):
    """Not Hugging Face's immutable sandbox: templates of Kimi append to their lists, and the lists are copies."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(joined)  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation, Bounds])
        del self.globals["lipsum"]
        self.filters = {name: _bounded(function) for name, function in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Instrument().visit(super()._parse(source, name, filename))
        return tree

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        check_time()
        _check_numbers((*args, *kwargs.values()))
        return _count(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, Sized) and isinstance(times, int):
                    check_size(len(many) * times)
        elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            check_size(len(left) + len(right))
        elif operator == "%" and isinstance(left, str) and WIDE.search(left):
            raise _too_much("formats a number with a very wide field")
        elif operator == "**" and isinstance(right, int | float):
            bits = left.bit_length() if isinstance(left, int) else 0
            if abs(right) > MAX_POWER or bits > MAX_POWER:
                raise _too_much("computes a very large power")
        return _count(super().call_binop(context, operator, left, right))


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes no very large number, and makes no very large text."""

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers((*args[1:], *kwargs.values()))
        return _count(function(*args, **kwargs))

    return bounded


def _check_numbers(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, int):
            check_size(abs(value))
