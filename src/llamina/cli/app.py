"""The `llamina` command: finds verbs, and turns errors into one line and an exit code."""

import gc
import os
import sys
import traceback
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

import click

from llamina import __version__
from llamina.errors import LlaminaError, ModelNotFound, RequestError

VERBS = {
    "run": "Answer a prompt.",
    "chat": "Talk with a model in the terminal.",
    "tui": "Talk with a model on the whole terminal, with plots.",
    "serve": "Serve models over HTTP: the APIs of OpenAI, Anthropic and Ollama.",
    "top": "Show what a running server does, live.",
    "embed": "Compute embeddings of texts.",
    "rerank": "Sort documents by how well they answer a query.",
    "perplexity": "Measure the perplexity of a text.",
    "pull": "Download a model.",
    "list": "List the models on this machine.",
    "ps": "List the models that a running server has loaded.",
    "stop": "Unload a model of a running server, or end the server.",
    "rm": "Delete a downloaded model.",
    "gc": "Delete partial downloads and kernels of older versions.",
    "show": "Show what a GGUF file contains and what memory it needs.",
    "verify": "Check that a GGUF file is sound.",
    "hash": "Print the hashes of a GGUF file and its tensors.",
    "diff": "Show what differs between two GGUF files.",
    "edit": "Set, remove and rename metadata of a GGUF file.",
    "split": "Write a GGUF file as shards.",
    "merge": "Write shards as one GGUF file.",
    "convert": "Convert a Hugging Face folder or safetensors file to a GGUF file.",
    "quantize": "Quantize a GGUF file.",
    "export-lora": "Merge LoRA adapters into a model.",
    "auto-quantize": "Quantize a GGUF file to a number of bits per weight, with types chosen by measured error.",
    "imatrix": "Measure the importance matrix of a model, for quantizing.",
    "tokenize": "Show the tokens of a text.",
    "detokenize": "Show the text of tokens.",
    "plan": "Inspect the steps by which a model is computed.",
    "bench": "Measure speed and memory, alone or against llama.cpp.",
    "doctor": "Check this machine: CPU, memory, GPU, folders, versions.",
    "completion": "Print a shell completion script.",
    "man": "Print manual pages.",
    "version": "Print versions, the backend and the CPU.",
}
ALIASES = {"ls": "list", "info": "show", "completions": "completion"}
HIDDEN = ("hub",)
INTERRUPTED = 130  # 128 + the signal, as shells count
CODES = {0: "done", 1: "an error", 2: "a mistake on the command line", 3: "no such model", 130: "interrupted"}


@dataclass
class Session:
    """What all verbs share: whether tracebacks are shown."""

    debug: bool = False


class Verbs(click.Group):
    """A group that imports `llamina.cli.VERB` only for the verb that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS and name not in HIDDEN:
            return None
        command: click.Command = import_module(f"{__package__}.{name.replace('-', '_')}").command
        if not any(param.name == "debug" for param in command.params):
            command.params.append(_debug())
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            meant = "".join(f": did you mean {close}?" for close in get_close_matches(name, [*VERBS, *ALIASES], 1))
            raise click.UsageError(f"there is no command {name!r}{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def main(self, args: Any = None, prog_name: str | None = None, **extra: Any) -> NoReturn:  # type: ignore[override]
        session = Session(bool(os.environ.get("LLAMINA_DEBUG")))
        if os.environ.get("_LLAMINA_COMPLETE", "").startswith("powershell"):
            import_module(f"{__package__}.powershell")
        extra = {"color": False if os.environ.get("NO_COLOR") else None, **extra, "standalone_mode": False}
        try:
            code = super().main(args, prog_name or "llamina", obj=session, **extra)
        except BaseException as error:
            if session.debug and not isinstance(error, click.ClickException | click.exceptions.Exit):
                traceback.print_exc()
            sys.exit(_report(error, extra["color"]))
        sys.exit(code if isinstance(code, int) else 0)


def _report(error: BaseException, color: bool | None) -> int:
    """Say what went wrong, in one line; the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            click.echo(error.message, err=True, color=color)
            return 2
        case SystemExit():
            return error.code if isinstance(error.code, int) else 1
        case click.exceptions.Exit():
            return error.exit_code
        case click.UsageError():
            _usage(error, color)
            return 2
        case click.ClickException():
            return _say(error.format_message(), error.exit_code, color)
        case KeyboardInterrupt() | click.Abort() | EOFError():
            return _say("interrupted", INTERRUPTED, color)
        case LlaminaError():
            return _say(str(error), _code(error), color)
        case OSError() | MemoryError():
            return _say(str(error) or "out of memory", 1, color)
    name = type(error).__name__
    return _say(f"{name}: {error} (a bug in llamina; --debug shows where)", 1, color)


def _code(error: LlaminaError) -> int:
    return 3 if isinstance(error, ModelNotFound) else 2 if isinstance(error, RequestError) else 1


def _say(message: str, code: int, color: bool | None) -> int:
    line = " ".join(message.split())
    click.echo(click.style("error: ", fg="red", bold=True) + line, err=True, color=color)
    return code


def _usage(error: click.UsageError, color: bool | None) -> None:
    _say(error.format_message(), 2, color)
    if error.ctx:
        click.echo(f"try: {error.ctx.command_path} --help", err=True)


def _debug() -> click.Option:
    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.ensure_object(Session).debug |= value

    return click.Option(
        ["--debug"], is_flag=True, expose_value=False, callback=remember, help="Show the traceback of an error."
    )


@click.command(
    cls=Verbs,
    params=[_debug()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Environment: LLAMINA_CACHE (folder of models and kernels), LLAMINA_MODEL (the default model), "
    "LLAMINA_THREADS (-t), LLAMINA_BACKEND (what --backend auto means), LLAMINA_PIN (1: pin each thread to a core), "
    "LLAMINA_ISA (instruction set), LLAMINA_OFFLINE (--offline), LLAMINA_URL and LLAMINA_API_KEY (the server of ps and "
    "stop), LLAMINA_DEBUG (--debug), NO_COLOR (no colours). Exit codes: "
    f"{', '.join(f'{code} {what}' for code, what in CODES.items())}.",
)
@click.version_option(__version__, "--version", prog_name="llamina", message="%(prog)s %(version)s")
def cli() -> None:
    """LLM inference from GGUF files in pure Python.

    \b
    Examples:
      llamina run "What is the capital of France?"
      llamina run -m model.gguf -p "Once upon a time" --raw
      llamina run -hf user/repo:Q4_K_M "Tell me a joke"
      llamina show model.gguf
    """


def main() -> NoReturn:
    """The entry point."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    gc.set_threshold(100_000)  # a vocabulary is many objects that stay: no use looking through them after every 700
    try:
        cli.main()
    finally:
        gc.freeze()  # nor once more at the end
