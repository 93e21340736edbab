"""A run at work: the model answers a thread, step by step, and whoever listens is told each event."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from llamina.server.errors import ApiError, api_error
from llamina.server.http import KEEP_ALIVE, event
from llamina.server.model import Chunk, Model
from llamina.server.openai.assistants import states
from llamina.server.openai.assistants.conversation import conversation, fit
from llamina.server.openai.assistants.objects import MESSAGE, STEP, message, new_step, now
from llamina.server.openai.assistants.request import chat_options, text_part
from llamina.server.openai.assistants.schema import (
    LastError,
    MessageCreation,
    RequiredAction,
    RunEvent,
    RunStepDelta,
    RunUsage,
    StepCall,
    StepDetails,
    TextDelta,
    ThreadMessageDelta,
)
from llamina.server.openai.assistants.states import changed, end, shown
from llamina.server.openai.chat import Choice
from llamina.server.openai.schema import ToolCall
from llamina.server.store import Kept
from llamina.server.store.store import ANY

DONE = b"event: done\ndata: [DONE]\n\n"


class Listener:
    """The events of a run on their way to a client. The run goes on when nobody listens any more."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    def tell(self, name: str, data: RunEvent) -> None:
        self._queue.put_nowait(event(data, name))

    def close(self) -> None:
        self._queue.put_nowait(None)

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events until the run ends or waits for outputs."""
        while True:
            try:
                part = await asyncio.wait_for(self._queue.get(), KEEP_ALIVE)
            except TimeoutError:
                yield b": keep-alive\n\n"
                continue
            if part is None:
                yield DONE
                return
            yield part


def start(server: Any, run: Kept, listener: Listener | None = None, owner: str | None = None) -> None:
    """Let a run that is queued be worked on; for its owner, if it is not the caller's who asks for it now."""
    server.jobs.start(run.id, Work(server, run, listener or Listener()).perform(), owner=owner)


class Work:
    """One turn of a run: until the answer is complete, or tools are to be called."""

    def __init__(self, server: Any, run: Kept, listener: Listener) -> None:
        self._server, self._store, self._listener = server, server.store, listener
        self._run = run
        self._choice = Choice(0)
        self._usage: RunUsage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._message: Kept | None = None
        self._step: Kept | None = None

    async def perform(self) -> None:
        """Answer. Cancelled without the run being told to, as when the server stops, it is left for the next start."""
        try:
            await self._answer()
        except asyncio.CancelledError:
            run = await self._store.get(self._run.kind, self._run.id)
            if run is None or run.status != "cancelling":
                raise
            self._tell(run)
            await self._end("cancelled")
        except Exception as error:
            await self._end("failed", last_error(error))
        finally:
            self._listener.close()

    async def _answer(self) -> None:
        begun = self._run.body["started_at"] or now()
        await self._change_run("in_progress", started_at=begun, server=self._server.instance.id)
        body = self._run.body
        options = chat_options(body, self._server.config.limits)
        if (most := body["max_completion_tokens"]) is not None:
            options["max_tokens"] = most - body["usage"]["completion_tokens"]
            if options["max_tokens"] < 1:
                await self._change_run("incomplete", incomplete_details={"reason": "max_completion_tokens"})
                return
        async with self._server.models.use(body["model"]) as (_, model):
            messages = await self._prompt(model, options)
            if messages is None:
                await self._change_run("incomplete", incomplete_details={"reason": "max_prompt_tokens"})
                return
            async with model.generate(messages=messages, options=options) as stream:
                async for chunk in stream:
                    await self._take(chunk)
        await self._finish()

    async def _prompt(self, model: Model, options: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The messages to answer, the oldest left out if that is wanted; None if `max_prompt_tokens` is too few."""
        messages = await conversation(self._store, self._run)
        most, context = self._run.body["max_prompt_tokens"], model.info.context - 1
        if not most and self._run.body["truncation_strategy"]["type"] != "auto":
            return messages
        fitting = await fit(model, messages, options, min(most or context, context))
        return messages if fitting is None and not most else fitting  # more than the context is an error of its own

    async def _take(self, chunk: Chunk) -> None:
        self._choice.take(chunk)
        if chunk.text:
            written = self._message or await self._begin_message()
            part: TextDelta = {"index": 0, "type": "text", "text": {"value": chunk.text, "annotations": []}}
            delta: ThreadMessageDelta = {
                "id": written.id,
                "object": "thread.message.delta",
                "delta": {"content": [part]},
            }
            self._listener.tell("thread.message.delta", delta)
        if chunk.usage is not None:
            made, prompt = chunk.usage.completion_tokens, chunk.usage.prompt_tokens
            self._usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    async def _begin_message(self) -> Kept:
        run = self._run
        by = {"assistant_id": run.body["assistant_id"] or None, "run_id": run.id}
        self._message = message(run.parent, run.owner, "assistant", [], "in_progress", **by)
        created: MessageCreation = {"message_id": self._message.id}
        self._step = new_step(run, {"type": "message_creation", "message_creation": created})
        await self._store.write([self._message, self._step], [])
        for kept in (self._step, self._message):
            self._listener.tell(f"{kept.kind}.created", shown(kept))
            self._listener.tell(f"{kept.kind}.in_progress", shown(kept))
        return self._message

    async def _finish(self) -> None:
        """Keep what the model said, in one transaction: the message, its step, calls, the run's new state."""
        calls, length = list(self._choice.calls.values()), self._choice.reason == "length"
        if not calls and self._message is None:
            await self._begin_message()
        ended: list[Kept] = []
        if self._message is not None and self._step is not None:
            ended.append(await self._written(length and not calls))
            nothing: RunUsage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            usage = nothing if calls else self._usage
            ended.append(changed(self._step, "completed", completed_at=now(), usage=usage))
        before, own = self._run.body["usage"], self._usage
        total: RunUsage = {
            "prompt_tokens": before["prompt_tokens"] + own["prompt_tokens"],
            "completion_tokens": before["completion_tokens"] + own["completion_tokens"],
            "total_tokens": before["total_tokens"] + own["total_tokens"],
        }
        if calls:
            await self._require(calls, ended, total)
        elif length:
            why = {"reason": "max_completion_tokens"}
            await self._change_run("incomplete", ended, incomplete_details=why, usage=total)
        else:
            await self._change_run("completed", ended, completed_at=now(), usage=total)

    async def _written(self, cut: bool) -> Kept:
        """The message with its text, complete or cut at the limit."""
        assert self._message is not None
        latest = await self._store.get(MESSAGE, self._message.id) or self._message  # its metadata may be others now
        text = {"content": [text_part(self._choice.text)] if self._choice.text else []}
        if cut:
            why = {"incomplete_details": {"reason": "max_tokens"}, "incomplete_at": now()}
            return changed(latest, "incomplete", **text, **why)
        return changed(latest, "completed", **text, completed_at=now())

    async def _require(self, calls: list[ToolCall], ended: list[Kept], total: RunUsage) -> None:
        """Ask the client to call its functions."""
        noted: list[StepCall] = [
            {"id": call["id"], "type": call["type"], "function": {**call["function"], "output": None}} for call in calls
        ]
        step = new_step(self._run, {"type": "tool_calls", "tool_calls": noted})
        step.body["usage"] = self._usage
        required: RequiredAction = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        news = [
            ("thread.run.step.created", shown(step)),
            ("thread.run.step.in_progress", shown(step)),
            ("thread.run.step.delta", _delta(step, noted)),
        ]
        fields = {"required_action": required, "expires_at": now() + states.PATIENCE, "usage": total}
        await self._change_run("requires_action", ended, [step], news, **fields)

    async def _change_run(
        self,
        status: str,
        ended: list[Kept] | None = None,
        new: list[Kept] | None = None,
        news: list[tuple[str, RunEvent]] | None = None,
        **fields: Any,
    ) -> None:
        """Put the run into another state, with its parts, and tell. Raises CancelledError if it is being cancelled."""
        latest = await self._store.get(self._run.kind, self._run.id) or self._run
        run = changed(latest, status, **fields)
        parts = ended or []
        if not await self._store.write(new or [], [*parts, run], ("queued", "in_progress")):
            raise asyncio.CancelledError
        self._run = run
        for kept in parts:
            self._tell(kept)
        for name, data in news or []:
            self._listener.tell(name, data)
        self._tell(run)

    async def _end(self, status: str, error: LastError | None = None) -> None:
        """End without an answer; what was said until then is kept."""
        if self._message is not None and self._choice.text:
            latest = await self._store.get(MESSAGE, self._message.id) or self._message
            body = latest.body | {"content": [text_part(self._choice.text)]}
            await self._store.change(MESSAGE, latest.id, body=body, if_status=("in_progress",))
        for kept in await end(self._server, self._run, status, error):
            self._tell(kept)

    def _tell(self, kept: Kept) -> None:
        self._listener.tell(f"{kept.kind}.{kept.status}", shown(kept))


def _delta(step: Kept, calls: list[StepCall]) -> RunStepDelta:
    """All calls of a step at once: only at the end of an answer it is sure that they are calls."""
    details: StepDetails = {"type": "tool_calls", "tool_calls": [{**call, "index": i} for i, call in enumerate(calls)]}
    return {"id": step.id, "object": "thread.run.step.delta", "delta": {"step_details": details}}


def last_error(error: Exception) -> LastError:
    """Why a run failed, in OpenAI's words."""
    found: ApiError = api_error(error)
    code = "server_error" if found.status >= 500 else "invalid_prompt"
    return {"code": "rate_limit_exceeded" if found.code == "queue_full" else code, "message": found.message}


async def resume(server: Any) -> None:
    """Runs of processes that are gone: what was half said is said again, what was being cancelled is cancelled."""
    for run in await server.store.all("thread.run", parent=ANY, status=("queued", "in_progress", "cancelling")):
        if server.instance.alive(run.body.get("server", "")):
            continue
        if run.status == "cancelling":
            await end(server, run, "cancelled")
            continue
        for kind, parent in ((MESSAGE, run.parent), (STEP, run.id)):
            for kept in await server.store.all(kind, parent=parent, status=("in_progress",)):
                if kept.body["run_id"] == run.id:
                    await server.store.delete(kind, kept.id)
        again = changed(run, "queued")
        await server.store.write([], [again])
        start(server, again, owner=run.owner)
