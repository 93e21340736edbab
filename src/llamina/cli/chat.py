"""`llamina chat`: a conversation in the terminal."""

from typing import Any

import click

from llamina.cli.llama_cpp import always, batch_options, flash_option
from llamina.cli.loading import loading, loading_options
from llamina.cli.options import device_options, kv_option, mmproj_option, model_options
from llamina.cli.override_options import override_options, overrides
from llamina.cli.partner import check_url, open_partner, partner_options
from llamina.cli.sampling import SampledCommand, given, sampling_options


@click.command("chat", cls=SampledCommand)
@model_options
@mmproj_option
@partner_options
@click.option("--load", "saved", type=click.Path(exists=True, dir_okay=False), help="Go on with a saved conversation.")
@sampling_options
@loading_options
@device_options
@kv_option
@override_options
@batch_options
@flash_option
@always("--jinja")
@always("-cnv", "--conversation")
@always("-mli", "--multiline-input")
@click.option("--plain", is_flag=True, help="Print answers as they are, without rendering Markdown.")
@click.option("--no-history", is_flag=True, help="Do not keep what is typed for later.")
def command(
    model: str | None,
    hf: str | None,
    mmproj: str | None,
    url: str | None,
    api_key: str | None,
    system: str | None,
    saved: str | None,
    max_tokens: int,
    context: int | None,
    backend: str,
    device: int | None,
    gpu_layers: int | str | None,
    tensor_parallel: int,
    exact: bool,
    threads: int | None,
    kv_type: str,
    step_tokens: int | None,
    plain: bool,
    no_history: bool,
    **options: Any,
) -> int:
    """Talk with a model: of this machine, or behind a URL.

    Answers are rendered as Markdown while they stream. Ctrl-C stops an answer and keeps the conversation; /help lists
    the commands. Without a terminal, each line that is piped in is a message.

    \b
    Examples:
      llamina chat
      llamina chat -m model.gguf --system "Answer in one sentence."
      llamina chat --url http://127.0.0.1:8080/v1
      llamina chat --load talk.llamina
    """
    from rich.console import Console

    from llamina.repl.loop import Repl
    from llamina.repl.talk import Talk

    changes = {**loading(), **overrides()}
    check_url(url, hf, context, mmproj, changes)
    room: Any = {"backend": backend, "device": device, "threads": threads, "context": context, "kv_type": kv_type}
    room |= {
        "gpu_layers": gpu_layers,
        "tensor_parallel": tensor_parallel,
        "exact": exact,
        "step_tokens": step_tokens,
    }
    room["mmproj"] = mmproj
    room |= changes
    partner = open_partner(model, hf, url, api_key, room)
    try:
        talk = Talk(partner, system, {"max_tokens": max_tokens, **given(options)})
        console = Console(highlight=False)
        repl = Repl(talk, console, history=None if no_history else _history(), plain=plain)
        if saved:
            repl.take(f"/load {saved}")
        if console.is_terminal:
            repl.tell(f"{partner.name} · /help lists the commands")
        repl.run()
    finally:
        partner.close()
    return 0


def _history() -> Any:
    from llamina.places import data_dir

    return data_dir() / "history"
