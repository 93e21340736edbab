"""`llamina chat`: a conversation in the terminal."""

import os
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.advice import advised
from llamina.cli.options import device_options, kv_option, locate, mmproj_option, model_options, open_file
from llamina.cli.sampling import SampledCommand, given, sampling_options
from llamina.cli.terminal import Meter

if TYPE_CHECKING:
    from llamina.engine import Engine
    from llamina.repl.partner import Partner


@click.command("chat", cls=SampledCommand)
@model_options
@mmproj_option
@click.option("--url", metavar="URL", help="Talk to a server with OpenAI's API, such as http://127.0.0.1:8080/v1.")
@click.option("--api-key", envvar="LLAMINA_API_KEY", metavar="KEY", help="With --url: the server's API key.")
@click.option("--system", metavar="TEXT", help="The system message.")
@click.option("--load", "saved", type=click.Path(exists=True, dir_okay=False), help="Go on with a saved conversation.")
@click.option(
    "-n", "--max-tokens", "--n-predict", type=click.IntRange(min=1), default=1024, show_default=True, metavar="N",
    help="Most tokens of an answer.",
)  # fmt: skip
@click.option(
    "-c", "--ctx-size", "--n-ctx", "context", type=click.IntRange(min=2), metavar="N", help="Context size in tokens."
)
@sampling_options
@device_options
@kv_option
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
    threads: int | None,
    kv_type: str,
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

    if url and (hf or context or mmproj):
        raise click.UsageError("--url names a server, which has its own models: leave -hf, -c and --mmproj out")
    loading = {"backend": backend, "device": device, "threads": threads, "context": context, "kv_type": kv_type}
    loading["mmproj"] = mmproj
    partner = _partner(model, hf, url, api_key, loading)
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


def _partner(model: str | None, hf: str | None, url: str | None, key: str | None, loading: dict[str, Any]) -> "Partner":
    if url:
        from llamina.repl.remote import RemotePartner

        return RemotePartner(url, model, key)
    from llamina.engine import load
    from llamina.repl.local import LocalPartner

    def open_engine(name: str) -> "Engine":
        file = open_file(locate(name if name != hf else None, hf if name == hf else None))
        if "tokenizer.chat_template" not in file.metadata:
            raise click.UsageError(f"{name} has no chat template: it continues texts, as in `llamina run --raw`")
        with Meter("kernels") as meter, advised():
            own = loading if name == first else {**loading, "mmproj": None}  # another model has another encoder
            return load(file, progress=meter, **own)

    from llamina import hub

    first = model or hf or os.environ.get("LLAMINA_MODEL") or hub.DEFAULT
    return LocalPartner(first, open_engine)


def _history() -> Any:
    from llamina.places import data_dir

    return data_dir() / "history"
