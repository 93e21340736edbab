"""Making a response: from a request to its events, kept in the end; in the background if asked to."""

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec
from sqlalchemy.exc import IntegrityError

from llamina.server.errors import RETRY_SECONDS, ApiError, api_error
from llamina.server.http import with_keep_alive
from llamina.server.ids import new_id
from llamina.server.model import Chunk
from llamina.server.model.client import ChunkStream
from llamina.server.openai.responses.context import gather
from llamina.server.openai.responses.items import HEX, Item, ItemIds
from llamina.server.openai.responses.keeping import ACTIVE, CONVERSATION, EVENTS, RESPONSE, item_row
from llamina.server.openai.responses.log import EventLog
from llamina.server.openai.responses.messages import to_messages
from llamina.server.openai.responses.objects import new_response, response_error, sampling, usage
from llamina.server.openai.responses.output import Output
from llamina.server.openai.responses.request import ResponseRequest
from llamina.server.openai.responses.schema import ResponseEvent as Event
from llamina.server.openai.responses.schema import ResponseObject
from llamina.server.store import Kept
from llamina.server.store.store import made

if TYPE_CHECKING:
    from llamina.server.app import Server


@dataclass
class Asked:
    """A request that is translated: all that is needed to make its response, now or after a restart."""

    owner: str
    body: ResponseRequest
    response: ResponseObject
    input: list[Item]
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    warnings: list[str]

    @property
    def id(self) -> str:
        return self.response["id"]


async def prepare(server: "Server", owner: str, body: ResponseRequest, id: str | None = None) -> Asked:
    """Translate a request, to a response with this id, if one is given. Raises ApiError for what is wrong with it."""
    limits = server.config.limits
    body.check(limits)
    if body.background and body.seed is None:
        body = msgspec.structs.replace(body, seed=secrets.randbelow(1 << 31))  # begun again, it says the same
    entry, tools, options = server.models.find(body.model), body.offered(limits), body.engine_options(limits)
    id = id or new_id("resp_")
    context = await gather(server, owner, body, ItemIds(id))
    warnings = body.warnings() + tools.warnings
    if tools.left_out:
        warnings.append(f"tools that are not run here were left out: {', '.join(tools.left_out)}")
    if context.left_out:
        warnings.append(f"items that the model cannot read were left out: {', '.join(context.left_out)}")
    messages = to_messages(body.instructions, context.items)
    return Asked(owner, body, new_response(id, entry.id, body, tools), context.input, messages, options, warnings)


class Run:
    """A response under way."""

    def __init__(self, server: "Server", asked: Asked) -> None:
        self._server, self._asked = server, asked
        self._numbers = count()
        self.response = asked.response
        self.output = Output(ItemIds(asked.id, len(asked.input)), self.event)
        self.log = EventLog() if asked.body.background and asked.body.stream else None
        self.is_cancelled = False
        self._stream: ChunkStream | None = None
        self._first: Chunk | None = None

    @property
    def streams(self) -> list[ChunkStream]:
        """What it reads from the model, once it has begun."""
        return [self._stream] if self._stream is not None else []

    def event(self, type: str, **fields: Any) -> Event:
        return cast(Event, {"type": type, "sequence_number": next(self._numbers), **fields})

    def lifecycle(self, name: str) -> Event:
        """An event that has the response as it is now."""
        return self.event(f"response.{name}", response=dict(self.response))

    async def begin(self) -> None:
        """Put the conversation to the model. Raises what is wrong with the request, before anything is answered."""
        async with self._server.models.use(self._asked.body.model) as (_, model):
            self.response = {**self.response, **sampling(self._asked.body, model.info.sampling)}
            self._stream = model.generate(messages=self._asked.messages, options=self._asked.options)
            self._first = await anext(self._stream)

    async def _begin_patiently(self) -> None:
        """The same, as often as the server or its queue is full."""
        while True:
            try:
                return await self.begin()
            except Exception as error:
                found = api_error(error)
                if found.status != 503 or found.code == "model_lost":
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def events(self) -> AsyncGenerator[Event | None, None]:
        """The events; None after a while without any. Raises what ends the generation early.

        In the foreground, `begin` comes before.
        """
        yield self.lifecycle("created")
        if self._asked.body.background:
            yield self.lifecycle("queued")
            await self._begin_patiently()
            if not await self._server.store.change(RESPONSE, self._asked.id, status="in_progress", if_status=ACTIVE):
                return
            self.response["status"] = "in_progress"
        yield self.lifecycle("in_progress")
        assert self._stream is not None and self._first is not None
        last = self._first
        async with self._server.models.use(self._asked.body.model), self._stream:
            for event in self.output.take(last):
                yield event
            async for chunk in with_keep_alive(self._stream):
                if chunk is None:
                    yield None
                    continue
                last = chunk
                for event in self.output.take(chunk):
                    yield event
        for event in self._end(last):
            yield event
        final = self.lifecycle("completed" if self.response["status"] == "completed" else "incomplete")
        if await self._keep(final):
            yield final

    def _end(self, last: Chunk) -> list[Event]:
        """Close the output, and say in the response how it ended."""
        status = {"stop": "completed", "length": "incomplete"}.get(last.finish_reason or "", "cancelled")
        events = self.output.finish("completed" if status == "completed" else "incomplete")
        self.response |= {"status": status, "output": self.output.items}
        if status == "completed":
            self.response["completed_at"] = int(time.time())
        if status == "incomplete":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        if last.usage is not None:
            self.response["usage"] = usage(last.usage, self.output.reasoning_tokens)
        return events

    async def guarded_events(self) -> AsyncGenerator[Event | None, None]:
        """The same, where what ends the generation early is an event: the response failed."""
        try:
            async with aclosing(self.events()) as events:
                async for event in events:
                    yield event
        except Exception as error:
            for event in self._cut():
                yield event
            found = response_error(api_error(error))
            self.response |= {"status": "failed", "error": found, "output": self.output.items}
            final = self.lifecycle("failed")
            if await self._keep(final):
                yield final

    async def keep_cancelled(self) -> bool:
        """Keep a response that was cancelled; whether it was not done yet."""
        events = self._cut()
        self.response |= {"status": "cancelled", "output": self.output.items}
        for event in events:
            self.write(event)
        final = self.lifecycle("incomplete")
        kept = await self._keep(final)
        if kept:
            self.write(final)
        return kept

    def _cut(self) -> list[Event]:
        """Close the output where it is."""
        return self.output.finish("incomplete") if self.output.items else []

    def write(self, event: Event | None) -> None:
        """Tell those who follow."""
        if event is not None and self.log is not None:
            self.log.add(event)

    def end(self) -> None:
        """Nothing more will be told."""
        if self.log is not None:
            self.log.end()

    async def _keep(self, final: Event) -> bool:
        """Keep the response with what it brings its conversation; whether it is still wanted."""
        asked, store = self._asked, self._server.store
        if not asked.body.keeps:
            return True
        also, conversation = list[Kept](), asked.body.conversation_id
        there = conversation is not None and await store.get(CONVERSATION, conversation) is not None
        if conversation is not None and there and self.response["status"] in ("completed", "incomplete"):
            items = asked.input + cast(list[Item], self.response["output"])
            also = [item_row(conversation, item, asked.owner) for item in items]
        if self.log is not None:
            events = {"events": [*self.log.events, final]}
            also.append(made(EVENTS, f"{asked.id}:events", events, owner=asked.owner, parent=asked.id))
        body, status = {"response": self.response, "input": asked.input}, self.response["status"]
        try:
            if asked.body.background:
                return await store.change(RESPONSE, asked.id, body=body, status=status, if_status=ACTIVE, also=also)
            await store.insert_all([made(RESPONSE, asked.id, body, owner=asked.owner, status=status), *also])
        except IntegrityError as error:
            message = f"another response has brought the conversation {conversation!r} items of the same ids meanwhile"
            raise ApiError(409, message, "conflict_error", param="conversation") from error
        return True


async def answer(server: "Server", owner: str, body: ResponseRequest, key: str, **defaults: Any) -> ResponseObject:
    """The whole response, kept once for a key. `defaults` are options of the engine where the request gives none."""
    if body.background:
        raise ApiError(400, "background is true: a batch is in the background anyway, leave it out", param="background")
    id = "resp_" + hashlib.sha256(key.encode()).hexdigest()[:HEX]
    if (kept := await server.store.get(RESPONSE, id, owner)) is not None:
        found: ResponseObject = kept.body["response"]
        return found
    asked = await prepare(server, owner, body, id)
    asked.options = defaults | asked.options
    run = Run(server, asked)
    await run.begin()
    async for _ in run.events():
        pass
    return run.response


# ---- in the background -----------------------------------------------------------------------------------


async def start(server: "Server", asked: Asked) -> Run:
    """Keep what was asked for, and let it be made when the model has time."""
    request = {k: v for k, v in msgspec.to_builtins(asked.body).items() if v is not None and k != "input"}
    work = {"request": request, "messages": asked.messages, "server": server.instance.id}
    body = {"response": asked.response, "input": asked.input, "work": work}
    await server.store.insert(RESPONSE, asked.id, body, owner=asked.owner, status="queued")
    return launch(server, asked)


def launch(server: "Server", asked: Asked, owner: str | None = None) -> Run:
    """Begin with it: for the caller of now, who is charged for it, or for an owner whose request is over."""
    run = Run(server, asked)
    server.jobs.start(asked.id, _work(run), state=run, owner=owner)
    return run


async def _work(run: Run) -> None:
    try:
        async for event in run.guarded_events():
            run.write(event)
    finally:
        if not run.is_cancelled:
            run.end()


async def cancel(server: "Server", kept: Kept) -> bool:
    """End a response in the background at once, and keep what it has said; whether it was not done yet."""
    run: Run | None = server.jobs.state(kept.id)
    if run is None:
        response = kept.body["response"] | {"status": "cancelled"}
        body = {"response": response, "input": kept.body["input"]}
        return await server.store.change(RESPONSE, kept.id, body=body, status="cancelled", if_status=ACTIVE)
    run.is_cancelled = True
    await server.jobs.cancel(kept.id)
    try:
        return await run.keep_cancelled()
    finally:
        run.end()


async def resume(server: "Server") -> None:
    """Begin again with the responses in the background that a process which is gone left unfinished."""
    for kept in await server.store.all(RESPONSE, status=ACTIVE):
        if server.instance.alive(kept.body["work"]["server"]):
            continue
        kept.body["work"]["server"] = server.instance.id
        await server.store.change(RESPONSE, kept.id, body=kept.body)
        try:
            asked = _asked_again(server, kept)
        except Exception as error:
            found = response_error(api_error(error))
            response = kept.body["response"] | {"status": "failed", "error": found}
            body = {"response": response, "input": kept.body["input"]}
            await server.store.change(RESPONSE, kept.id, body=body, status="failed", if_status=ACTIVE)
        else:
            launch(server, asked, kept.owner)


def _asked_again(server: "Server", kept: Kept) -> Asked:
    work = kept.body["work"]
    body = msgspec.convert(work["request"], ResponseRequest)
    options = body.engine_options(server.config.limits)
    response = kept.body["response"] | {"status": "queued"}
    return Asked(kept.owner, body, response, kept.body["input"], work["messages"], options, [])
