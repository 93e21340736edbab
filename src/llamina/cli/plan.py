"""`llamina plan`: the steps of a model's forward pass, and whether the CPU computes them right."""

import json
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import complete_model, json_option, locate, open_file, threads_option
from llamina.cli.terminal import Meter, note

if TYPE_CHECKING:
    from llamina.engine import Engine
    from llamina.engine.diff import Difference

PROMPT = "The quick brown fox jumps over the lazy dog."


@click.group("plan")
def command() -> None:
    """Inspect the steps by which a model is computed.

    \b
    Examples:
      llamina plan show model.gguf
      llamina plan diff model.gguf
    """


@command.command("show")
@click.argument("model", shell_complete=complete_model)
def show_command(model: str) -> None:
    """Print the steps of MODEL's forward pass.

    A line for each: operation, format, weight, operands and settings.

    \b
    Examples:
      llamina plan show model.gguf
      llamina plan show smollm2 | grep blk.0
    """
    from llamina.cli.summary import blueprint
    from llamina.plan import show

    for line in show(blueprint(open_file(locate(model)))):
        click.echo(line)


@command.command("diff")
@click.argument("model", shell_complete=complete_model)
@click.option("-p", "--prompt", default=PROMPT, metavar="TEXT", help="The text to compute with.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest normalized mean squared error of a step; by default 1e-6, and 5e-3 with quantized weights.",
)
@click.option("--all", "go_on", is_flag=True, help="Continue after a step that differs.")
@threads_option
@json_option
def diff_command(
    model: str, prompt: str, tolerance: float | None, go_on: bool, threads: int | None, as_json: bool
) -> int:
    """Compare each step on the CPU with NumPy.

    Both get the same inputs. Stops at the first step of MODEL's plan that differs by more than the tolerance; the exit
    code is then 1.

    \b
    Examples:
      llamina plan diff model.gguf
      llamina plan diff smollm2 -p "Once upon a time" --json
    """
    from llamina.engine import load
    from llamina.engine.diff import compare, end_to_end

    with Meter("parts") as meter:
        engine = load(open_file(locate(model)), threads=threads, context=512, max_sequences=1, progress=meter)
    with engine:
        tokens = _tokens(engine, prompt)
        found: list[Difference] = []
        for difference in compare(engine, tokens, tolerance):
            found.append(difference)
            if not as_json:
                click.echo(_line(difference))
            if difference.over and not go_on:
                break
        first = next((d for d in found if d.over), None)
        whole = end_to_end(engine, tokens)
    if as_json:
        click.echo(json.dumps(_record(found, first, whole), indent=2))
    else:
        _conclude(found, first, whole)
    return 0 if first is None else 1


def _tokens(engine: "Engine", prompt: str) -> list[int]:
    """The prompt's tokens; for a file without a vocabulary some fixed ids."""
    if "tokenizer.ggml.tokens" in engine.runner.file.metadata:
        return engine.encode(prompt)[: engine.context]
    return [(7 * i + 1) % engine.runner.plan.vocab for i in range(16)]


def _line(difference: "Difference") -> str:
    step = difference.step
    form = step.weights[0].format.name if step.weights else ""
    mark = "  ← over the tolerance" if difference.over else ""
    return f"{difference.index:5} {step.op:13} {form:8} {step.name:28} {difference.error:.3e}{mark}"


def _conclude(found: list["Difference"], first: "Difference | None", whole: float) -> None:
    worst = max(found, key=lambda d: d.error)
    if first is None:
        where = f"{worst.index} ({worst.step.op} {worst.step.name})"
        note(f"{len(found)} steps agree; the worst is {where}: {worst.error:.3e}")
    else:
        step = first.step
        note(
            f"step {first.index} ({step.op} {step.name}) is the first that differs: "
            f"{first.error:.3e}, and the tolerance is {first.tolerance:.0e}"
        )
    note(f"the logits of the whole model differ by {whole:.3e}")


def _record(found: list["Difference"], first: "Difference | None", whole: float) -> dict[str, Any]:
    return {
        "steps": [
            {
                "index": d.index,
                "op": d.step.op,
                "name": d.step.name,
                "error": d.error,
                "tolerance": d.tolerance,
                "over": d.over,
            }
            for d in found
        ],
        "first_over": first.index if first else None,
        "end_to_end": whole,
    }
