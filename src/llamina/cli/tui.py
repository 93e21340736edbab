"""`llamina tui`: conversations on the whole terminal."""

from typing import Any

import click

from llamina.cli.loading import loading, loading_options
from llamina.cli.options import device_options, kv_option, mmproj_option, model_options
from llamina.cli.override_options import override_options, overrides
from llamina.cli.partner import check_url, open_partner, partner_options
from llamina.cli.sampling import SampledCommand, given, sampling_options
from llamina.cli.top import SERVER, need_terminal, need_textual, show, theme_option


@click.command("tui", cls=SampledCommand)
@model_options
@mmproj_option
@partner_options
@click.option("--top", is_flag=True, help="Show what a running server does, as `llamina top`.")
@theme_option
@sampling_options
@loading_options
@device_options
@kv_option
@override_options
def command(
    model: str | None,
    hf: str | None,
    mmproj: str | None,
    url: str | None,
    api_key: str | None,
    system: str | None,
    max_tokens: int,
    top: bool,
    theme: str,
    context: int | None,
    backend: str,
    device: int | None,
    threads: int | None,
    gpu_layers: int | str | None,
    tensor_parallel: int,
    exact: bool,
    kv_type: str,
    **options: Any,
) -> int:
    """Talk with a model on the whole terminal: conversations at the left, plots at the right.

    The model is one of this machine, which is loaded while you look around, or one behind a URL. Conversations are kept
    on disk. F1 lists the keys.

    \b
    Examples:
      llamina tui
      llamina tui -m model.gguf --system "Answer in one sentence."
      llamina tui --url http://127.0.0.1:8080/v1
      llamina tui --top --url http://127.0.0.1:8080
    """
    changes = {**loading(), **overrides()}
    check_url(url, hf, context, mmproj, changes)
    need_textual()
    need_terminal()
    if top:
        return show(url or SERVER, api_key, theme)
    from llamina.places import data_dir
    from llamina.repl.library import Library
    from llamina.repl.server_events import Server
    from llamina.tui.app import Terminal
    from llamina.tui.chat import Chat

    room: Any = {"backend": backend, "device": device, "threads": threads, "context": context, "kv_type": kv_type}
    room |= {"gpu_layers": gpu_layers, "tensor_parallel": tensor_parallel, "exact": exact, "mmproj": mmproj}
    chat = Chat(
        lambda progress: open_partner(model, hf, url, api_key, room | changes, progress),
        Library(data_dir() / "conversations"),
        system=system,
        settings={"max_tokens": max_tokens, **given(options)},
        server=Server(url, api_key) if url else None,
    )
    app = Terminal(lambda: chat, light=theme == "light")
    try:
        app.run()
    finally:
        chat.close()
    return app.return_code or 0
