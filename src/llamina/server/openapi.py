"""The OpenAPI document of a server, derived from its routes: each handler's struct, signature, docstring and path."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from starlette.routing import BaseRoute, Route

from llamina import __version__
from llamina.server.errors import shape_for

REF = "#/components/schemas/{name}"
CONVERTED = re.compile(r"\{(\w+)(?::(\w+))?\}")  # a parameter of a path, and its type
Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
PAGE: dict[str, Schema] = {  # of a list
    "after": TEXT,
    "before": TEXT,
    "limit": {"type": "integer", "minimum": 1},
    "order": {"type": "string", "enum": ["asc", "desc"]},
}


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The document of these routes; WebSockets and routes outside of the schema are left out."""
    found = [route for route in routes if isinstance(route, Route) and route.include_in_schema]
    bodies = [body_of(route.endpoint) for route in found]
    forms = [form_of(route.endpoint) for route in found]
    answers = [answers_of(route.endpoint) for route in found]
    errors = [error_of(route.path) for route in found]
    told = [kind for answer in answers for kinds in answer.values() for kind in kinds]
    all_kinds = dict.fromkeys((*bodies, *forms, *told, *errors))
    kinds = [kind for kind in all_kinds if kind is not None and not isinstance(kind, tuple)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route, body, form, answer, error in zip(found, bodies, forms, answers, errors, strict=True):
        content = {} if body is None else {"application/json": {"schema": schema_of[body]}}
        if form is not None:
            fields = components[form.__name__]["properties"] if isinstance(form, type) else dict.fromkeys(form, TEXT)
            content = {"multipart/form-data": {"schema": _with_file(fields)}}
        schemas_of = {media: [schema_of[kind] for kind in kinds] for media, kinds in answer.items()}
        responses = _responses(route, schemas_of, schema_of[error])
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operation = _operation(route, method, content, responses)
            paths.setdefault(CONVERTED.sub(r"{\1}", route.path), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llamina",
            "version": __version__,
            "description": "Models behind the APIs of OpenAI, Anthropic, Ollama and llama.cpp's server.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def answers_of(handler: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    """The types that a handler answers with, by media type, as its signature has them; of a stream, those of an event.

    Without those of answers that are not JSON.
    """
    told = _alternatives(inspect.unwrap(handler).__annotations__["return"])
    found = {get_origin(kind): get_args(kind) for kind in told}
    return {kind.media_type: _alternatives(args[0]) for kind, args in found.items() if kind is not None}


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union. msgspec has no schema for one of several objects."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def error_of(path: str) -> Any:
    """The type of the errors of the API that a path belongs to."""
    return shape_for(path).__annotations__["return"]


def statuses_of(handler: Callable[..., Any]) -> list[int]:
    """The statuses of a handler's answers: those that it gives to `json`, else 200."""
    found = {
        number.value
        for node in _nodes(handler)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "json"
        for status in node.args[1:2]
        for number in ast.walk(status)
        if isinstance(number, ast.Constant) and isinstance(number.value, int)
    }
    return sorted(found or {200})


def body_of(handler: Callable[..., Any]) -> Any:
    """The type of the body that a handler reads: that of its `read(request, Type)`, or of its `decode(…, type=Type)`.

    None if it reads none, or one that is not JSON.
    """
    for node in _nodes(handler):
        if isinstance(node, ast.Call) and (kind := _kind(node)) is not None:
            known = inspect.unwrap(handler).__globals__
            return eval(compile(ast.Expression(kind), "<type>", "eval"), known)  # a type that we have written
    return None


def form_of(handler: Callable[..., Any]) -> Any:
    """The form that a handler reads by `receive`, beside its file: the struct of its `convert(form.fields, Type)`, or
    the names in FIELDS of its file. None if it reads none."""
    known, name = inspect.unwrap(handler).__globals__, None
    for node in _nodes(handler):
        match node:
            case ast.Call(ast.Attribute(attr="convert"), [ast.Attribute(attr="fields"), ast.Name(kind)]):
                return known[kind]
            case ast.Call(ast.Name("receive")):
                name = "FIELDS"
    return None if name is None else known[name]


def queries_of(handler: Callable[..., Any]) -> dict[str, Schema]:
    """The parameters of the query that a handler itself asks for by name, or as a page of a list, with their types."""
    found: dict[str, Schema] = {}
    for node in _nodes(handler):
        match node:
            case ast.Call(ast.Name("whole" | "truth" as kind), [_, ast.Constant(str(name)), *_]):
                found[name] = {"type": "integer" if kind == "whole" else "boolean"}
            case ast.Call(ast.Name("asked_page")):
                found |= PAGE
        if (asked := _query(node)) is not None:
            found.setdefault(asked, TEXT)
    return found


def _query(node: ast.AST) -> str | None:
    """x of `query_params.get("x", …)`, `query_params["x"]` and `"x" in query_params`."""
    match node:
        case (
            ast.Call(ast.Attribute(ast.Attribute(attr="query_params"), "get"), [ast.Constant(str(name)), *_])
            | ast.Subscript(ast.Attribute(attr="query_params"), ast.Constant(str(name)))
            | ast.Compare(ast.Constant(str(name)), [ast.In() | ast.NotIn()], [ast.Attribute(attr="query_params")])
        ):
            return name
    return None


def _nodes(handler: Callable[..., Any]) -> list[ast.AST]:
    """The syntax of a handler; none if its source is not there."""
    try:
        return list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(handler))))))
    except (OSError, TypeError):
        return []


def _kind(call: ast.Call) -> ast.expr | None:
    """The type that a call reads a body as."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    if name == "read" and len(call.args) > 1 and isinstance(call.func, ast.Name):
        return call.args[1]
    reads = any(isinstance(node, ast.Name) and node.id == "read_bytes" for arg in call.args for node in ast.walk(arg))
    return next((k.value for k in call.keywords if k.arg == "type"), None) if name == "decode" and reads else None


def _with_file(fields: dict[str, Schema]) -> Schema:
    """The schema of a form with a file."""
    properties = {"file": {"type": "string", "format": "binary"}, **fields}
    return {"type": "object", "required": ["file"], "properties": properties, "additionalProperties": False}


def _responses(route: Route, answers: dict[str, list[Schema]], error: Schema) -> dict[str, Any]:
    """What comes back. An event of a stream may be an error, too."""
    streams = any(media != "application/json" for media in answers)
    content = {}
    for media, schemas in answers.items():
        told = schemas if media == "application/json" else [*schemas, error]
        content[media] = {"schema": told[0] if len(told) == 1 else {"anyOf": told}}
    what = "The answer. The schema of a stream is that of the JSON of each event or line." if streams else "The answer."
    answer = {"description": what, **({"content": content} if content else {})}
    return {
        **{str(status): answer for status in statuses_of(route.endpoint)},
        "default": {
            "description": "An error, in the shape of the API.",
            "content": {"application/json": {"schema": error}},
        },
    }


def _operation(route: Route, method: str, body: dict[str, Any], responses: dict[str, Any]) -> dict[str, Any]:
    words = [method.lower(), *re.findall(r"\w+", CONVERTED.sub(r"\1", route.path))]
    found: dict[str, Any] = {
        "operationId": "_".join(words),
        "tags": [route.endpoint.__module__.split(".")[2]],  # the room that its file is in
        "summary": _summary(route.endpoint),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "integer" if kind == "int" else "string"}}
            for name, kind in CONVERTED.findall(route.path)
        ]
        + [{"name": name, "in": "query", "schema": kind} for name, kind in queries_of(route.endpoint).items()],
        "responses": responses,
    }
    if body:
        found["requestBody"] = {"required": True, "content": body}
    return found


def _summary(handler: Callable[..., Any]) -> str:
    """What the docstring of a handler says after its method and path, else that of its file."""
    function = inspect.unwrap(handler)
    text = " ".join((inspect.getdoc(function) or "").split())
    own = re.sub(r"^(?:[A-Z]+(?:,| and)? ?)+/\S*[:.]? ?", "", text)
    return own or (inspect.getdoc(inspect.getmodule(function)) or "").partition("\n")[0]
