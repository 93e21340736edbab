"""What a server answers, held against its OpenAPI document."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from llamina.server.openapi import CONVERTED, document

OPEN = {"NativeCompletion"}  # objects that may have other fields than those that are told


def strict(schema: Any) -> Any:
    """The schema, by which an object has no other fields than those that are told."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(part) for name, part in schema.items()}
    if "properties" in schema and schema.get("title") not in OPEN:
        found["additionalProperties"] = False
    return found


class Told:
    """The document of some routes, and validators by it."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes, self.document = routes, document(routes)
        self._components = strict(self.document["components"])
        self._validators: dict[int, Any] = {}

    def validator(self, schema: dict[str, Any]) -> Any:
        """The validator of one of the document's schemas."""
        if id(schema) not in self._validators:
            whole = {**strict(schema), "components": self._components}
            self._validators[id(schema)] = jsonschema_rs.Draft202012Validator(whole)
        return self._validators[id(schema)]


TOLD: list[Told] = []  # servers come and go in the tests, and their routes are the same


def told_by(routes: list[Route]) -> Told:
    found = next((told for told in TOLD if told.routes == routes), None)
    if found is None:
        TOLD.append(found := Told(routes))
    return found


class Contract:
    """An application that keeps the answers of another which are not as its document says, and counts the others."""

    def __init__(self, app: Any) -> None:
        self._app: ASGIApp = app
        self._told = told_by([route for route in app.routes if isinstance(route, Route) and route.include_in_schema])
        self.seen: Counter[tuple[str, str, str]] = Counter()  # method, path, and status or kind of stream
        self.broken: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operation(scope) if scope["type"] == "http" else None
        if operation is None:
            return await self._app(scope, receive, send)
        start: dict[str, Any] = {}
        body = bytearray()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
                if not message.get("more_body"):
                    self._check(operation, start, bytes(body))
            await send(message)

        await self._app(scope, receive, watched)

    def _operation(self, scope: Scope) -> tuple[str, str] | None:
        for route in self._told.routes:
            if route.matches(scope)[0] is Match.FULL and scope["method"] != "HEAD":
                return scope["method"].lower(), CONVERTED.sub(r"{\1}", route.path)
        return None

    def _check(self, operation: tuple[str, str], start: dict[str, Any], body: bytes) -> None:
        method, path = operation
        answers = self._told.document["paths"][path][method]["responses"]
        status, headers = str(start["status"]), dict(start["headers"])
        answer = answers.get(status, answers["default"])
        media = headers.get(b"content-type", b"").decode().partition(";")[0]
        if "content" not in answer:
            return
        if media not in answer["content"]:
            self.broken.append(f"{method} {path} answers {status} with {media!r}: {body[:200]!r}")
            return
        self.seen[method, path, status if media == "application/json" else media] += 1
        validator = self._told.validator(answer["content"][media]["schema"])
        for part in parts(media, body):
            if error := next(validator.iter_errors(decoded(part)), None):
                where = "/".join(map(str, error.instance_path))
                self.broken.append(f"{method} {path} answers {status}: {error.message} at {where!r}: {part[:1000]!r}")


def decoded(part: bytes) -> Any:
    """A value of JSON. Halves of characters, and numbers that no computer has, are told as others of their type."""
    return json.loads(re.sub(rb"\\ud[89a-f]..", b"?", part), parse_float=lambda digits: 0.5)


def parts(media: str, body: bytes) -> Iterator[bytes]:
    """The JSON values of a body: one, or those of its lines or events."""
    if media == "application/json":
        yield body
    elif media == "application/x-ndjson":
        yield from body.splitlines()
    else:
        for line in body.split(b"\n"):
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                yield line.removeprefix(b"data: ")
