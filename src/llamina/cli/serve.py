"""`llamina serve`: models behind the APIs of OpenAI, Anthropic and Ollama."""

import os
from pathlib import Path
from typing import Any

import click

from llamina.cli.options import complete_model, kv_option, threads_option
from llamina.cli.terminal import note


@click.command("serve")
@click.argument("models", nargs=-1, shell_complete=complete_model)
@click.option(
    "-m",
    "--model",
    "more",
    multiple=True,
    metavar="MODEL",
    shell_complete=complete_model,
    help="A GGUF file or the name of a model; several times. NAME=FILE gives it another name.",
)
@click.option("--alias", multiple=True, metavar="NAME", help="Another name of the first model; several times.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0: any free one."
)
@click.option(
    "-c", "--ctx-size", "--n-ctx", "context", type=click.IntRange(min=2), metavar="N", help="Tokens of context."
)
@click.option(
    "--max-sequences", "--parallel", "-np", type=click.IntRange(min=1), metavar="N", help="Answers at a time."
)
@click.option("--max-models", type=click.IntRange(min=1), default=4, show_default=True, help="Models loaded at a time.")
@threads_option
@kv_option
@click.option(
    "--slot-save-path",
    "slots",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="The folder that /slots saves KV caches to and restores them from.",
)
@click.option("--load/--no-load", "eager", default=True, help="Load the first model at start, or when it is asked for.")
def command(
    models: tuple[str, ...],
    more: tuple[str, ...],
    alias: tuple[str, ...],
    host: str,
    port: int,
    context: int | None,
    max_sequences: int | None,
    max_models: int,
    threads: int | None,
    kv_type: str,
    slots: str | None,
    eager: bool,
) -> int:
    """Serve MODELS (by default the model that `run` uses) until Ctrl-C.

    Each loaded model is a process of its own; others are loaded when they are asked for, and the least recently used
    makes room. Clients of OpenAI (/v1), Anthropic (/v1/messages) and Ollama (/api) work unchanged.

    \b
    Examples:
      llamina serve
      llamina serve model.gguf --alias gpt-4o --port 8000
      llamina serve -m small=smollm2 -m qwen2.5-coder-1.5b
      curl http://127.0.0.1:8080/v1/chat/completions -d '{"messages": [{"role": "user", "content": "hi"}]}'
    """
    from llamina import hub
    from llamina.server.config import Config, ModelProfile
    from llamina.server.run import serve

    profile: dict[str, Any] = {
        "context": context,
        "threads": threads,
        "kv_type": kv_type,
        "max_sequences": max_sequences,
    }
    named = [_named(value) for value in (*models, *more) or (os.environ.get("LLAMINA_MODEL") or hub.DEFAULT,)]
    ids = [name for name, _ in named]
    if twice := {name for name in ids if ids.count(name) > 1}:
        raise click.UsageError(f"two models are called {twice.pop()}: give one another name, as NAME=FILE")
    profiles = {
        name: ModelProfile(model, aliases=list(alias) if at == 0 else [], **profile)
        for at, (name, model) in enumerate(named)
    }
    config = Config(host=host, port=port, models=profiles, max_models=max_models, slots=slots or "")
    return serve(config, eager=eager, tell=note)


def _named(value: str) -> tuple[str, str]:
    """A model's id and its file or name; NAME=FILE gives both."""
    name, equals, model = value.partition("=")
    if equals and name and model and not os.path.exists(value):
        return name, model
    path = Path(value)
    return (path.stem if path.suffix == ".gguf" else value), (str(path.resolve()) if path.exists() else value)
