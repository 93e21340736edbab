"""Beam search for `/v1/completions`: the likeliest answers as a whole."""

import time
from typing import Any, Protocol

from llamina.server.errors import ApiError
from llamina.server.ids import new_id
from llamina.server.model.frames import Usage
from llamina.server.openai.schema import TextChoice, TextCompletion
from llamina.server.openai.usage import timings, usage
from llamina.server.record import current

OFF = {"temperature": 0}  # what may be given and asks nothing: beams choose by themselves


class Search(Protocol):
    """The fields of a request that ask for a search. `n` answers are told."""

    model: str
    use_beam_search: bool | None
    beam_width: int | None
    num_beams: int | None
    n: int | None
    best_of: int | None
    length_penalty: float | None
    early_stopping: bool | None


def width(body: Search) -> int | None:
    """How many beams are asked for; None: no search. Raises ApiError for widths that differ."""
    given = {body.beam_width, body.num_beams} - {None}
    if len(given) > 1:
        raise ApiError(400, "beam_width and num_beams are both given, and differ", param="num_beams")
    if given and body.use_beam_search is not False:
        return given.pop()
    if body.use_beam_search:  # as vLLM has it: n is the width
        return body.best_of or body.n or 1
    for name in ("beam_width", "num_beams", "length_penalty", "early_stopping"):
        if getattr(body, name) is not None:
            raise ApiError(400, f"{name} is given without a search: set use_beam_search", param=name)
    return None


async def answer(
    server: Any, body: Search, prompts: list[str | list[int]], options: dict[str, Any], n: int
) -> TextCompletion:
    """A `text_completion` of the `n` best answers to each prompt, best first. Raises ApiError."""
    beam_width, most = width(body), server.config.limits.answers
    if beam_width is None or not 1 <= beam_width <= most:
        raise ApiError(400, f"beam_width is {beam_width}: must be a number from 1 to {most}", param="beam_width")
    given = {name: value for name, value in options.items() if OFF.get(name) != value}
    given["beam_width"] = beam_width
    for name in ("length_penalty", "early_stopping"):
        if (value := getattr(body, name)) is not None:
            given[name] = value
    usages: list[Usage] = []
    choices: list[TextChoice] = []
    async with server.models.use(body.model) as (entry, model):
        for prompt in prompts:
            found = await model.call("beam_search", prompt=prompt, n=n, options=given)
            usages.append(Usage(**found["usage"]))
            choices += [
                {
                    "index": len(choices) + i,
                    "text": beam["text"],
                    "logprobs": None,
                    "finish_reason": beam["finish_reason"],
                    "score": beam["score"],
                }
                for i, beam in enumerate(found["answers"])
            ]
    counts = usage(usages)
    counts["prompt_tokens"] = sum(part.prompt_tokens for part in usages)
    counts["total_tokens"] = counts["prompt_tokens"] + counts["completion_tokens"]
    if (record := current()) is not None:
        record.prompt_tokens += counts["prompt_tokens"]
        record.completion_tokens += counts["completion_tokens"]
    return {
        "id": new_id("cmpl-"),
        "object": "text_completion",
        "created": int(time.time()),
        "model": entry.id,
        "choices": choices,
        "usage": counts,
        "timings": timings(usages),
    }
