"""Calls written as Python: `name(key=value)`, in blocks of code or between markers."""

import ast
import json
from dataclasses import dataclass

from llamina.chat.calls import Calls
from llamina.chat.lark import Lark, Schema
from llamina.chat.reader import BLOCK, NotACall, Parse, Reader
from llamina.chat.styles import Block, read_objects

CODE_TOOLS = ("python", "code_interpreter", "ipython")


@dataclass(frozen=True, slots=True)
class Pythonic:
    """`open name(key=value) close`; several calls on lines of their own, or as a list."""

    open: str
    close: str
    listed: bool = False  # written as a list
    known: bool = True  # only the names of tools are calls

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.open, self.close)

    def read(self, reader: Reader, opened: str, calls: Calls) -> Parse[None]:
        code, _ = yield from reader.through(self.close, longest=BLOCK)
        for name, arguments in python_calls(code, calls, self.known):
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


def python_calls(code: str, calls: Calls, known: bool) -> list[tuple[str, str]]:
    """Names and JSON arguments of the calls that some code consists of."""
    try:
        body = ast.parse(code.strip(), mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotACall("not Python") from error
    found = [call for statement in body for call in _expressions(statement)]
    if not found:
        raise NotACall("no call")
    return [_call(call, calls, known) for call in found]


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print":
        value = value.args[0] if len(value.args) == 1 else None
    if value is None:
        raise NotACall("a statement that is no call")
    return list(value.elts) if isinstance(value, ast.List) else [value]


def _call(node: ast.expr, calls: Calls, known: bool) -> tuple[str, str]:
    if not isinstance(node, ast.Call):
        raise NotACall("an expression that is no call")
    name = ast.unparse(node.func).removesuffix(".call")
    if known and name not in calls.tools:
        raise NotACall(f"{name!r} is no tool")
    keys = calls.tools.property_names(name)
    if len(node.args) > len(keys) or any(word.arg is None for word in node.keywords):
        raise NotACall("arguments without names")
    pairs = [*zip(keys, node.args, strict=False), *((word.arg or "", word.value) for word in node.keywords)]
    return name, json.dumps({key: _literal(value) for key, value in pairs}, ensure_ascii=False)


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.Name) and node.id in ("true", "false", "null"):  # JSON's, by mistake
        return json.loads(node.id)
    try:
        value = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError) as error:
        raise NotACall("an argument that is no plain value") from error
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
        yield from reader.blanks()
        if (yield from reader.peek()) == "{":
            yield from read_objects(reader, calls)
            return
        code = yield from _rest(reader)
        try:
            found = python_calls(code, calls, known=True)
        except NotACall:
            found = [_code_call(code, calls)]
        for name, arguments in found:
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
    """A call of the tool that runs code, if there is one with a place for it."""
    for name in CODE_TOOLS:
        keys = calls.tools.property_names(name) if name in calls.tools else []
        if keys and code:
            return name, json.dumps({keys[0]: code}, ensure_ascii=False)
    raise NotACall("code, and no tool to run it")
