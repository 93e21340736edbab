"""Calls written as Python: `name(key=value)`, in code blocks or between markers."""

import ast
import json
from dataclasses import dataclass

from llamina.chat.formats.format import Block
from llamina.chat.formats.lark import Lark, Schema
from llamina.chat.formats.objects import read_objects
from llamina.chat.parse.calls import Calls
from llamina.chat.parse.reader import MAX_BLOCK, NotACall, Parse, Reader

CODE_TOOLS = ("python", "code_interpreter", "ipython")


@dataclass(frozen=True, slots=True)
class Pythonic:
    """`open name(key=value) close`; several calls on lines of their own, or as a list."""

    open: str
    close: str
    listed: bool = False  # a list, in the grammar; both are read
    offered: bool = True  # only names of offered tools are calls

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        code, _ = yield from reader.through(self.close, longest=MAX_BLOCK)
        for name, arguments in python_calls(code, calls, self.offered):
            yield from calls.whole(reader, name, arguments)

    @property
    def trigger(self) -> str:
        return self.open

    @property
    def block(self) -> Block:
        if self.listed:
            return Block(f"{self.open}[", f"]{self.close}", ", ")
        return Block(f"{self.open}\n", f"\n{self.close}", "\n")

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        arguments = lark.listed(schema, lambda key, inner: [lark.text(f"{key}="), lark.json(inner)], ", ")
        return [lark.text(f"{name}("), arguments, lark.text(")")]


def python_calls(code: str, calls: Calls, offered: bool) -> list[tuple[str, str]]:
    """Return the names and JSON arguments of the calls that the code consists of. Raises NotACall for other code."""
    try:
        body = ast.parse(code.strip(), mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotACall("not Python") from error
    expressions = [expression for statement in body for expression in _expressions(statement)]
    if not expressions:
        raise NotACall("no call")
    return [_call(expression, calls, offered) for expression in expressions]


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
        value = value.args[0] if len(value.args) == 1 else None
    if value is None:
        raise NotACall("a statement that is not a call")
    return list(value.elts) if isinstance(value, ast.List) else [value]


def _call(node: ast.expr, calls: Calls, offered: bool) -> tuple[str, str]:
    if not isinstance(node, ast.Call):
        raise NotACall("an expression that is not a call")
    name = ast.unparse(node.func).removesuffix(".call")
    if offered and name not in calls.tools:
        raise NotACall(f"{name!r} is not an offered tool")
    keys = calls.tools.property_names(name)
    if len(node.args) > len(keys) or any(word.arg is None for word in node.keywords):
        raise NotACall("arguments without names")
    pairs = [*zip(keys, node.args, strict=False), *((word.arg or "", word.value) for word in node.keywords)]
    return name, json.dumps({key: _literal(value) for key, value in pairs}, ensure_ascii=False)


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):  # JSON's spelling
        return json.loads(node.id)
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as error:
        raise NotACall("an argument that is not a literal") from error
    return value


@dataclass(frozen=True, slots=True)
class PythonTag:
    """Llama 3's `<|python_tag|>`: JSON, `name.call(key=value)`, or code for a tool that runs Python."""

    open: str = "<|python_tag|>"

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open,)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        yield from reader.skip_whitespace()
        if (yield from reader.peek()) == "{":
            yield from read_objects(reader, calls)
            return
        code = yield from _rest(reader)
        try:
            named = python_calls(code, calls, offered=True)
        except NotACall:
            named = [_code_call(code, calls)]
        for name, arguments in named:
            yield from calls.whole(reader, name, arguments)

    @property
    def trigger(self) -> str:
        return ""

    @property
    def block(self) -> Block:
        return Block()

    def write(self, name: str, schema: Schema, lark: Lark) -> list[str]:
        return [lark.text(f'{{"name": "{name}", "parameters": '), lark.json(schema), lark.text("}")]


def _rest(reader: Reader) -> Parse[str]:
    start = reader.at
    while (yield from reader.peek()):
        reader.at = len(reader.text)
    return reader.text[start:]


def _code_call(code: str, calls: Calls) -> tuple[str, str]:
    """Return a call of the tool that runs Python. Raises NotACall if none with a parameter is offered."""
    for name in CODE_TOOLS:
        keys = calls.tools.property_names(name) if name in calls.tools else []
        if keys and code:
            return name, json.dumps({keys[0]: code}, ensure_ascii=False)
    raise NotACall("code, and no offered tool runs it")
