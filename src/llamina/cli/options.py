"""Options that several verbs share, the model that they name, and the text they are given."""

import io
import os
import select
import stat
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from llamina.backends import BACKENDS, KV_TYPES
from llamina.cli.llama_cpp import cache_type_options, same_types
from llamina.cli.terminal import SOON, Meter, note, warn

if TYPE_CHECKING:
    from llamina.engine import Engine
    from llamina.gguf import GGUF

Function = TypeVar("Function", bound=Callable[..., Any])


def complete_model(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of pulled models; failing those, files."""
    from llamina import hub

    known = dict.fromkeys([*hub.names(), *hub.CATALOGUE])
    found = [CompletionItem(name) for name in known if name.lower().startswith(incomplete.lower())]
    return found or [CompletionItem(incomplete, type="file")]


def offline_option(function: Function) -> Function:
    """`--offline`: for this process and those that it starts."""

    def forbid(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            os.environ["LLAMINA_OFFLINE"] = "1"

    text = "Fetch nothing: only models that are here.  [env: LLAMINA_OFFLINE]"
    return click.option("--offline", is_flag=True, expose_value=False, callback=forbid, help=text)(function)


def model_options(function: Function) -> Function:
    """`-m`, `-hf` and `--offline`."""
    function = offline_option(function)
    function = click.option(
        "-hf",
        "-hfr",
        "--hf-repo",
        "--hf",
        "hf",
        metavar="USER/REPO[:QUANT]",
        help="A model on Hugging Face; the quantization is Q4_K_M unless named.",
    )(function)
    return click.option(
        "-m",
        "--model",
        metavar="FILE|NAME|URL",
        shell_complete=complete_model,
        help="A GGUF file, the name of a model or the address of one; by default LLAMINA_MODEL, else a small model "
        "that is fetched.",
    )(function)


def kv_option(function: Function) -> Function:
    """`--kv-type`, and `-ctk` and `-ctv`, which have to agree."""
    function = cache_type_options(function)
    return click.option(
        "--kv-type",
        type=click.Choice(KV_TYPES),
        default=KV_TYPES[0],
        show_default=True,
        callback=same_types,
        help="Format of keys and values in the KV cache.",
    )(function)


def mmproj_option(function: Function) -> Function:
    """`--mmproj`."""
    return click.option(
        "--mmproj",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="The encoder of pictures or sounds that belongs to the model; by default the mmproj file beside it.",
    )(function)


def _adapters(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, float]:
    """Scales by path, from FILE or FILE=SCALE; a file whose own name has a = is found first."""
    found: dict[str, float] = {}
    for value in values:
        path, scale = value, "1"
        if not os.path.exists(value) and "=" in value:
            path, _, scale = value.rpartition("=")
        if not os.path.exists(path):
            raise click.BadParameter(f"{path} does not exist: give a file or folder, with =SCALE behind it or without")
        if path in found:
            raise click.BadParameter(f"{path} is given twice: give it once, with the sum of the scales")
        try:
            found[path] = float(scale)
        except ValueError:
            raise click.BadParameter(f"{scale!r} is not a scale: give a number after {path}=") from None
    return found


def lora_option(function: Function) -> Function:
    """`--lora`."""
    return click.option(
        "--lora",
        "adapters",
        multiple=True,
        callback=_adapters,
        metavar="FILE[=SCALE]",
        help="A LoRA adapter to apply, a GGUF file or PEFT's folder, times SCALE. May be repeated.",
    )(function)


def load_adapters(engine: "Engine", files: dict[str, float]) -> dict[str, float]:
    """Load the adapters; their names in the engine, with their scales."""
    return {engine.load_adapter(file): scale for file, scale in files.items()}


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: 500M, 2.5G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().upper().removesuffix("B")
        unit = 1 << 10 * (" KMGT".index(text[-1]) if text and text[-1] in "KMGT" else 0)
        try:
            return int(float(text.rstrip("KMGT")) * unit)
        except ValueError:
            self.fail(f"{value!r} is not a size in bytes such as 500M or 2.5G", param, ctx)


def cores() -> int:
    """The number of cores that this process may use."""
    from llamina.backends.host import usable_cores

    return usable_cores()


def usable_threads(count: int) -> int:
    """`count`, at most the usable cores: more threads would only wait for each other. Warns if there are fewer."""
    usable = cores()
    if count > usable:
        warn(f"{count} threads are asked for and there are {usable} usable cores: using {usable} threads")
    return min(count, usable)


def _threads(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    return value if value is None or ctx.resilient_parsing else usable_threads(value)


def threads_option(function: Function) -> Function:
    """`--threads`."""
    return click.option(
        "-t",
        "--threads",
        type=click.IntRange(min=1),
        envvar="LLAMINA_THREADS",
        callback=_threads,
        metavar="N",
        help="Number of threads, at most the usable cores; by default all of them.",
    )(function)


class GpuLayers(click.ParamType):  # type: ignore[type-arg]
    """A number of layers, auto or all."""

    name = "layers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in ("auto", "all"):
            return str(value)
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of layers, auto or all", param, ctx)


def device_options(function: Function) -> Function:
    """`--threads`, `--backend`, `--device`, `--gpu-layers`, `--tensor-parallel` and `--exact`."""
    function = click.option(
        "--exact",
        is_flag=True,
        envvar="LLAMINA_EXACT",
        help="With a GPU: a token's bits do not depend on what else is computed at the same time. Slower for a lone "
        "sequence. On the CPU it is always so.",
    )(function)
    function = click.option(
        "--tensor-parallel",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        envvar="LLAMINA_TENSOR_PARALLEL",
        help="Divide every layer among N GPUs, from --device on.",
    )(function)
    function = click.option(
        "-ngl",
        "--gpu-layers",
        "--n-gpu-layers",
        type=GpuLayers(),
        metavar="N|auto|all",
        envvar="LLAMINA_GPU_LAYERS",
        help="With a GPU: how many of the last layers it computes, the output counted as one; the CPU computes the "
        "others. By default auto: those that fit its free memory.",
    )(function)
    function = click.option(
        "--device", type=click.IntRange(min=0), metavar="N", help="With a GPU: its number.", envvar="LLAMINA_DEVICE"
    )(function)
    return threads_option(
        click.option(
            "--backend",
            type=click.Choice(BACKENDS),
            default=BACKENDS[0],
            show_default=True,
            help="What computes: the CPU, an NVIDIA GPU, or NumPy (slow, for comparison). auto: the GPU if one can be "
            "used, else the CPU.",
        )(function)
    )


def json_option(function: Function) -> Function:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def locate(
    model: str | None,
    hf: str | None = None,
    quiet: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """The file of the model that is meant. A model of a known name that is not here yet is fetched.

    How far that is goes to `progress`, or else to stderr unless it shall be `quiet`.

    Raises ModelNotFound with a similar name, if there is one.
    """
    from llamina import hub

    if model and hf:
        raise click.UsageError("-m and -hf both name a model: give one of them")
    name = model or os.environ.get("LLAMINA_MODEL") or hub.DEFAULT
    with Meter("bytes", quiet) if progress is None else nullcontext(progress) as meter:
        return hub.pull(hf, meter) if hf else _file(name) or hub.obtain(name, meter)


def picture(place: str) -> Any:
    """The picture of a file or a web address, as a part of a message. Raises InvalidPicture if there is none."""
    from llamina.vision import read_picture

    if not place.startswith(("http://", "https://")):
        return {"type": "image", "image": read_picture(place)}
    from llamina.hub.web import check_online
    from llamina.vision.fetch import fetch

    check_online(place)
    return {"type": "image", "image": read_picture(fetch(place))}


def recording(path: str) -> Any:
    """The sound of a file, as a part of a message. Raises InvalidSound if there is none."""
    from llamina.sound import read_sound

    return {"type": "audio", "audio": read_sound(Path(path))}


def find_file(name: str) -> Path:
    """The file of that path, or of the pulled model of that name.

    Raises ModelNotFound with a similar name, if there is one, or if the path is a folder.
    """
    from llamina import hub

    return _file(name) or hub.find(name)


def _file(name: str) -> Path | None:
    """The path, if it is a file. Raises ModelNotFound if it is a folder."""
    from llamina.errors import ModelNotFound

    if os.path.isdir(name):
        raise ModelNotFound(f"{name} is a folder, and a GGUF file is expected: {_way_out_of(Path(name))}")
    return Path(name) if os.path.isfile(name) else None


def _way_out_of(folder: Path) -> str:
    """What to do with a folder that was given as a model."""
    if files := sorted(folder.glob("*.gguf")):
        return f"name one of its files, such as {files[0]}"
    if (folder / "adapter_config.json").exists():
        return "it holds a LoRA adapter: use --lora, and -m for the model"
    if (folder / "config.json").exists():
        return f"convert it with `llamina convert {folder}`"
    return "there is none in it"


def open_file(path: Path) -> "GGUF":
    """The model in a GGUF file. Raises UnsupportedModel if it holds a LoRA adapter."""
    from llamina.errors import UnsupportedModel
    from llamina.gguf import open_model

    file = open_model(path)
    if str(file.metadata.get("general.type")) == "adapter":
        raise UnsupportedModel(f"{path} is a LoRA adapter: use --lora {path}, and -m for the model it belongs to")
    return file


def piped(expected: bool = True) -> str:
    """What is piped in on stdin, to its end; nothing if stdin is a terminal or another device, such as /dev/null.

    Says that it is waiting if that takes long and nothing is `expected`.
    """
    if sys.stdin is None:  # closed
        return ""
    try:
        fd = sys.stdin.fileno()
    except io.UnsupportedOperation:  # a stream of Python's own
        return decode(sys.stdin.buffer.read(), "what is piped in")
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not expected and os.name == "posix" and not select.select([fd], [], [], SOON)[0]:
        note("waiting for the end of what is piped in; if nothing is, add < /dev/null")
    return decode(sys.stdin.buffer.read(), "what is piped in")


def text_of(text: str | None, what: str) -> str:
    """An argument; without one, what is piped in."""
    found = piped() if text is None else text
    if not found:
        raise click.UsageError(f"no {what} is given: write it after the command, or pipe it in")
    return found


def decode(content: bytes, what: str) -> str:
    """UTF-8 bytes as text, on every platform."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{what} is not UTF-8 text: byte {error.start} is {content[error.start]:#x}") from None
