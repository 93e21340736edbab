"""`llamina show`: what a GGUF file contains, and what it needs to run."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from llamina.cli.options import complete_model, find_file, json_option, offline_option
from llamina.cli.summary import abbreviate, metadata_json, summary, tensors_json
from llamina.cli.terminal import bytes_text, count_text
from llamina.errors import ModelNotFound

if TYPE_CHECKING:
    from llamina.gguf import GGUF


@click.command("show")
@click.argument("model", metavar="FILE|NAME|URL", required=False, shell_complete=complete_model)
@click.option("-m", "--model", "other", hidden=True)
@click.option("--tensors", is_flag=True, help="Also list the tensors.")
@click.option("--metadata", is_flag=True, help="Also list the metadata, long arrays abbreviated.")
@offline_option
@json_option
def command(model: str | None, other: str | None, tensors: bool, metadata: bool, as_json: bool) -> None:
    """Show what a GGUF file contains, whether it runs here, and how much memory it takes.

    The file may also be a pulled model's, or a URL, of which only the header is read. HF_TOKEN is for URLs of private
    repositories.

    \b
    Examples:
      llamina show model.gguf
      llamina show smollm2 --metadata
      llamina show https://example.org/model.gguf --tensors --json
    """
    if (model is None) == (other is None):
        raise click.UsageError("give one file, name or URL of a model" + ("" if model is None else ", and not two"))
    file = _opened(str(model or other))
    facts = summary(file)
    if as_json:
        extra = {"metadata": metadata_json(file)} if metadata else {}
        listed = {"tensors": tensors_json(file)} if tensors else {}
        click.echo(json.dumps(facts | extra | listed, indent=2, ensure_ascii=False))
        return
    for name, value in _lines(facts).items():
        click.echo(f"{name:15} {value}")
    if metadata:
        click.echo("\nmetadata")
        for key, item in file.metadata.items():
            click.echo(f"  {key:45} {file.metadata_types[key]!s:16} {abbreviate(item)}")
    if tensors:
        click.echo("\ntensors")
        for tensor in file.tensors.values():
            shape = " × ".join(map(str, tensor.shape))
            click.echo(f"  {tensor.name:40} {tensor.type.name:8} {shape:20} {bytes_text(tensor.nbytes):>9}")


def _opened(model: str) -> "GGUF":
    """The file, or the header of one at a web address; without a network, the file that was pulled from there."""
    from llamina.gguf import open_model, open_url
    from llamina.hub.origin import is_url
    from llamina.hub.web import check_online, offline, token_for

    if not is_url(model):
        return open_model(find_file(model))
    if offline():
        with suppress(ModelNotFound):
            return open_model(find_file(model))
        check_online(model)
    return open_url(model, token=token_for(model))


def _lines(facts: dict[str, Any]) -> dict[str, str]:
    """The facts as text, by name."""
    known = {
        "file": facts["file"],
        "name": facts["name"],
        "architecture": facts["architecture"],
        "models": facts["covers"],
        "runs here": "yes" if facts["runs"] else f"no: {facts['reason']}",
        "parameters": f"{count_text(facts['parameters'])} ({facts['parameters']:,})",
        "size": f"{bytes_text(facts['bytes'])}, {facts['bits_per_weight']:.2f} bits per weight",
        "formats": ", ".join(_format(kind, of) for kind, of in facts["formats"].items()),
        "memory": "; ".join(_memory(facts["memory"])),
        "context": facts["context"],
        "layers": facts["layers"],
        "width": facts["width"],
        "heads": _heads(facts),
        "experts": f"{facts['experts_used']} of {facts['experts']}" if facts["experts"] else None,
        "vocabulary": _vocabulary(facts["vocabulary"]),
        "chat template": "yes" if facts["chat_template"] else "no",
        "features": "; ".join(facts["features"] or ()) or None,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def _format(kind: str, of: dict[str, Any]) -> str:
    missing = "" if of["kernel"] else " (no kernel)"
    return f"{kind} {bytes_text(of['bytes'])} in {of['tensors']}{missing}"


def _memory(memory: dict[str, Any]) -> Iterator[str]:
    yield f"{bytes_text(memory['weights'])} of weights"
    whose = {"per_1024_tokens": "1,024 tokens", "per_1024_tokens_out_of_window": "1,024 tokens outside the window"}
    for key, tokens in whose.items():
        sizes = memory.get(key) or {}
        if any(sizes.values()):
            each = ", ".join(f"{bytes_text(size)} in {kind}" for kind, size in sizes.items())
            yield f"KV cache of {tokens}: {each}"
    if memory.get("per_sequence"):
        yield f"{bytes_text(memory['per_sequence'])} of recurrent state per sequence"


def _vocabulary(vocabulary: dict[str, Any]) -> str | None:
    if not vocabulary["size"]:
        return None
    kinds = "/".join(str(kind) for kind in (vocabulary["model"], vocabulary["pre"]) if kind)
    return f"{vocabulary['size']:,} tokens ({kinds})" + (f": {vocabulary['reason']}" if vocabulary["reason"] else "")


def _heads(facts: dict[str, Any]) -> str | None:
    if not facts["heads"]:
        return None
    kv = facts["kv_heads"]
    return f"{facts['heads']}" + (f", {kv} KV heads" if kv not in (None, facts["heads"]) else "")
