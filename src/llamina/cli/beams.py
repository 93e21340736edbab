"""`llamina run --beam-width`: the likeliest answers as a whole, told at their end with their scores."""

import json
from typing import Any

import click

from llamina.cli.answer import Circumstances
from llamina.cli.options import Function
from llamina.cli.terminal import busy, note
from llamina.engine import Completion, Engine

UNSAID = {"speculate": "auto", "adapters": {}, "stop": (), "ignore_eos": False, "length_penalty": None}
"""What options have that were not given."""


def beam_options(function: Function) -> Function:
    """`--beam-width` and `--length-penalty`."""
    function = click.option(
        "--length-penalty",
        type=float,
        metavar="N",
        help="With --beam-width: the power of the length that a log-probability is divided by.  [default: 1]",
    )(function)
    return click.option(
        "--beam-width",
        type=click.IntRange(min=1),
        metavar="N",
        help="Search for the likeliest answer with N beams, instead of sampling; --json has all N, with scores.",
    )(function)


def check_beams(width: int | None, penalty: float | None, others: dict[str, Any]) -> None:
    """Raises UsageError for what does not go with beams, `others` by their flags."""
    if width is None and penalty is not None:
        raise click.UsageError("--length-penalty is about beams: add --beam-width")
    if width is not None and (given := [flag for flag, value in others.items() if value]):
        raise click.UsageError(f"{given[0]} does not go with --beam-width: leave one of them out")


def print_beams(
    engine: Engine, tokens: list[int], options: dict[str, Any], about: Circumstances, as_json: bool, quiet: bool
) -> int:
    """Search, and print the best answer, or all as JSON; the exit code."""
    given = {name: value for name, value in options.items() if name not in UNSAID or value != UNSAID[name]}
    with busy(f"searching with {given['beam_width']} beams", quiet):
        best = engine.generate(tokens, n=given["beam_width"], **given)
    if as_json:
        usage = {"prompt_tokens": len(tokens), "completion_tokens": best.usage.completion_tokens}
        told = {"model": about.path.name, **_facts(best), "usage": usage}
        told["alternatives"] = [_facts(answer) for answer in best.alternatives]
        click.echo(json.dumps(told, ensure_ascii=False))
        return 0
    click.echo(best.text)
    if not quiet:
        note(f"score {best.score:.4f}, log-probability {best.cumulative_logprob:.4f}")
    return 0


def _facts(answer: Completion) -> dict[str, Any]:
    facts: dict[str, Any] = {"text": answer.text, "tokens": answer.tokens, "finish_reason": answer.finish_reason}
    return facts | {"score": answer.score, "logprob": answer.cumulative_logprob}
