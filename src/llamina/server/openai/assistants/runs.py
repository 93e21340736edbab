"""`/v1/threads/{id}/runs`: an assistant answers a thread. A run goes on whether its client waits or not."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from llamina.server.caller import caller
from llamina.server.errors import ApiError
from llamina.server.http import Events, Json, events, json, read
from llamina.server.ids import new_id
from llamina.server.openai.assistants.objects import (
    ASSISTANT,
    RUN,
    STEP,
    change_metadata,
    find,
    listing,
    new_message,
    now,
)
from llamina.server.openai.assistants.pictures import check_files
from llamina.server.openai.assistants.request import (
    MetadataUpdate,
    RunRequest,
    ThreadRequest,
    ThreadRunRequest,
    ToolOutputs,
    Truncation,
    chat_options,
    check_counts,
    check_metadata,
    check_resources,
)
from llamina.server.openai.assistants.schema import Run, RunEvent, RunStep, StepCall, StepDetails
from llamina.server.openai.assistants.states import ACTIVE, changed, end, shown, up_to_date
from llamina.server.openai.assistants.threads import check_room, thread_and_messages, thread_of
from llamina.server.openai.assistants.work import Listener, resume, start
from llamina.server.openai.lists import listed
from llamina.server.openai.schema import Listed
from llamina.server.store import Kept
from llamina.server.store.store import made

__all__ = ["resume", "routes"]
Begun = Json[Run] | Events[RunEvent]


async def create(request: Request) -> Json[Run] | Events[RunEvent]:
    """POST /v1/threads/{id}/runs."""
    server = request.app.state.server
    thread = await thread_of(request)
    asked = await read(request, RunRequest)
    run = await _new_run(request, asked, thread.id)
    before = await server.store.get(RUN, thread.status) if thread.status else None
    if before is not None and (await up_to_date(server, before)).status in ACTIVE:
        raise _busy(thread.id)
    messages = [new_message(message, thread.id, thread.owner) for message in asked.additional_messages or []]
    await check_files(server, messages)
    await check_room(server, thread, len(messages))

    async def begin() -> Begun:
        # The thread's status is the run that works on it: of two requests at a time, one finds it changed.
        if not await server.store.write([*messages, run], [replace(thread, status=run.id)], (thread.status,)):
            raise _busy(thread.id)
        return _begin(request, run, bool(asked.stream))

    begun: Begun = await server.jobs.whole(begin())
    return begun


def _busy(thread: str) -> ApiError:
    return ApiError(400, f"{thread} has an active run already: wait for its end, or cancel it")


async def create_with_thread(request: Request) -> Json[Run] | Events[RunEvent]:
    """POST /v1/threads/runs."""
    asked = await read(request, ThreadRunRequest)
    check_resources(asked.tool_resources)
    thread, *messages = thread_and_messages(request, asked.thread or ThreadRequest(), asked.additional_messages or ())
    server, run = request.app.state.server, await _new_run(request, asked, thread.id)
    await check_files(server, messages)

    async def begin() -> Begun:
        await server.store.insert_all([replace(thread, status=run.id), *messages, run])
        return _begin(request, run, bool(asked.stream), thread)

    begun: Begun = await server.jobs.whole(begin())
    return begun


def _begin(request: Request, run: Kept, streamed: bool, thread: Kept | None = None) -> Begun:
    """Start a new run; its events, or how it stands."""
    listener = Listener()
    if thread is not None:
        listener.tell("thread.created", thread.body)
    listener.tell("thread.run.created", shown(run))
    listener.tell("thread.run.queued", shown(run))
    start(request.app.state.server, run, listener if streamed else None)
    return events(request, listener.events(), "error") if streamed else json(shown(run))


async def _new_run(request: Request, asked: RunRequest, thread: str) -> Kept:
    """A run that is queued. Raises ApiError for what cannot be done, now rather than when it fails."""
    server, id = request.app.state.server, new_id("run_")
    check_counts(asked)
    defaults: dict[str, Any] = (await find(request, ASSISTANT, asked.assistant_id)).body if asked.assistant_id else {}

    def wanted(name: str) -> Any:
        given = getattr(asked, name)
        return defaults.get(name) if given is None else given

    cut = asked.truncation_strategy or Truncation(type="auto")
    instructions = [text for text in (wanted("instructions"), asked.additional_instructions) if text]
    body: Run = {
        "id": id,
        "object": "thread.run",
        "created_at": now(),
        "assistant_id": asked.assistant_id,
        "thread_id": thread,
        "status": "queued",
        "started_at": None,
        "expires_at": None,
        "cancelled_at": None,
        "failed_at": None,
        "completed_at": None,
        "required_action": None,
        "last_error": None,
        "incomplete_details": None,
        "model": server.models.find(wanted("model")).id,
        "instructions": "\n\n".join(instructions),
        "tools": wanted("tools") or [],
        "tool_choice": asked.tool_choice or "auto",
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "metadata": check_metadata(asked.metadata),
        "temperature": wanted("temperature"),
        "top_p": wanted("top_p"),
        "max_completion_tokens": asked.max_completion_tokens,
        "max_prompt_tokens": asked.max_prompt_tokens,
        "truncation_strategy": {"type": cut.type, "last_messages": cut.last_messages},
        "response_format": wanted("response_format") or "auto",
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    if (effort := wanted("reasoning_effort")) is not None:
        body["reasoning_effort"] = effort
    chat_options(dict(body), server.config.limits)
    return made(RUN, id, body, caller(request).id, thread, "queued")


# ---- one run ---------------------------------------------------------------------------------------------


async def retrieve(request: Request) -> Json[Run]:
    """GET /v1/threads/{id}/runs/{id}."""
    return json(shown(await _run(request)))


async def update(request: Request) -> Json[Run]:
    """POST /v1/threads/{id}/runs/{id}."""
    asked = await read(request, MetadataUpdate)
    return json(shown(await change_metadata(request, _run, asked.metadata)))


async def index(request: Request) -> Json[Listed[Run]]:
    """GET /v1/threads/{id}/runs."""
    page = await listing(request, RUN, (await thread_of(request)).id)
    server = request.app.state.server
    return listed([shown(await up_to_date(server, run)) for run in page.items], page.more)


async def cancel(request: Request) -> Json[Run]:
    """POST /v1/threads/{id}/runs/{id}/cancel: nothing more is computed when this is answered."""
    server = request.app.state.server
    run = await _run(request)
    if run.status not in ACTIVE:
        raise ApiError(400, f"{run.id} cannot be cancelled: it is {run.status}")
    if run.status != "requires_action":
        await server.store.write([], [changed(run, "cancelling")], ("queued", "in_progress"))
        await server.jobs.cancel(run.id)
        run = await _run(request)
    if run.status in ACTIVE:  # nobody works on it
        await end(server, run, "cancelled")
    return json(shown(await _run(request)))


async def submit_tool_outputs(request: Request) -> Json[Run] | Events[RunEvent]:
    """POST /v1/threads/{id}/runs/{id}/submit_tool_outputs: the run goes on with what the functions returned."""
    server = request.app.state.server
    run = await _run(request)
    asked = await read(request, ToolOutputs)
    if run.status != "requires_action":
        raise ApiError(400, f"{run.id} does not wait for tool outputs: it is {run.status}")
    steps = await server.store.all(STEP, parent=run.id, status=("in_progress",))
    done = changed(steps[-1], "completed", completed_at=now(), step_details=_with_outputs(steps[-1], asked))
    queued = changed(run, "queued", required_action=None, expires_at=None)
    listener = Listener()

    async def go_on() -> None:
        if not await server.store.write([], [done, queued], ("requires_action", "in_progress")):
            raise ApiError(400, f"{run.id} does not wait for tool outputs any more")
        listener.tell("thread.run.step.completed", shown(done))
        listener.tell("thread.run.queued", shown(queued))
        start(server, queued, listener if asked.stream else None)

    await server.jobs.whole(go_on())
    return events(request, listener.events(), "error") if asked.stream else json(shown(queued))


def _with_outputs(step: Kept, asked: ToolOutputs) -> StepDetails:
    """The step's calls with what they returned. Raises ApiError unless there is one output for each."""
    details: StepDetails = step.body["step_details"]
    outputs = {one.tool_call_id: one.output for one in asked.tool_outputs}
    wanted = [call["id"] for call in details["tool_calls"]]
    if sorted(one.tool_call_id for one in asked.tool_outputs) != sorted(wanted):
        message = f"tool_outputs must have one output for each of {', '.join(wanted)}"
        raise ApiError(400, message, param="tool_outputs")
    calls: list[StepCall] = [
        {**call, "function": {**call["function"], "output": outputs[call["id"]]}} for call in details["tool_calls"]
    ]
    return {"type": details["type"], "tool_calls": calls}


async def _run(request: Request) -> Kept:
    """The run that the path names, as it stands now. Raises ApiError."""
    thread = await thread_of(request)
    run = await find(request, RUN, request.path_params["run"], thread.id)
    return await up_to_date(request.app.state.server, run)


# ---- steps -----------------------------------------------------------------------------------------------


async def list_steps(request: Request) -> Json[Listed[RunStep]]:
    """GET /v1/threads/{id}/runs/{id}/steps."""
    page = await listing(request, STEP, (await _run(request)).id)
    return listed([shown(step) for step in page.items], page.more)


async def retrieve_step(request: Request) -> Json[RunStep]:
    """GET /v1/threads/{id}/runs/{id}/steps/{id}."""
    return json(shown(await find(request, STEP, request.path_params["step"], (await _run(request)).id)))


RUNS = "/v1/threads/{thread}/runs"
routes = [
    Route("/v1/threads/runs", create_with_thread, methods=["POST"]),
    Route(RUNS, create, methods=["POST"]),
    Route(RUNS, index, methods=["GET"]),
    Route(RUNS + "/{run}", retrieve, methods=["GET"]),
    Route(RUNS + "/{run}", update, methods=["POST"]),
    Route(RUNS + "/{run}/cancel", cancel, methods=["POST"]),
    Route(RUNS + "/{run}/submit_tool_outputs", submit_tool_outputs, methods=["POST"]),
    Route(RUNS + "/{run}/steps", list_steps, methods=["GET"]),
    Route(RUNS + "/{run}/steps/{step}", retrieve_step, methods=["GET"]),
]
