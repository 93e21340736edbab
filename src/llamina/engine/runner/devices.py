"""Which backends compute a model: one, the CPU the first layers and a GPU the others, or several side by side."""

from typing import Any, Literal

from llamina.backends import GPUS, Backend, best, check_kv_type
from llamina.backends import backend as make_backend
from llamina.backends.host import usable_cores
from llamina.backends.parallel import ParallelBackend
from llamina.backends.split import SplitBackend
from llamina.engine.runner.memory import Part, Wanted
from llamina.errors import CapacityError, RequestError, UnsupportedModel
from llamina.plan import Plan
from llamina.plan.split import count_layers

GpuLayers = int | Literal["auto", "all"]
RESERVE = 1280 << 20  # bytes of a GPU for what a step computes, its logits, and code


def divide_backend(
    name: str, ranks: int, *, device: int | None = None, stream: int | None = None, exact: bool = False, **host: Any
) -> Backend:
    """Tensor parallelism: so many GPUs, from `device` on, or parts of the CPU. Raises RequestError without them."""
    given = {"device": device, "threads": host["threads"]}
    name = best({key: value for key, value in given.items() if value is not None}) if name == "auto" else name
    if stream is not None:
        raise RequestError("stream is of one GPU: leave it out, or tensor_parallel", "stream")
    if host["offload"] != "none":
        raise RequestError("offload needs all of a model on one rank: leave it out, or tensor_parallel", "offload")
    if name == "cuda":
        made = [make_backend(name, device=(device or 0) + rank, exact=exact, **host) for rank in range(ranks)]
        return ParallelBackend(made, together=False)
    if name == "cpu":
        host["threads"] = max(1, (host["threads"] or usable_cores()) // ranks)
    return ParallelBackend([make_backend(name, device=device, **host) for _ in range(ranks)], together=True)


def choose_backend(
    name: str,
    plan: Plan,
    wanted: Wanted,
    gpu_layers: GpuLayers | None,
    *,
    device: int | None = None,
    stream: int | None = None,
    exact: bool = False,
    **host: Any,
) -> Backend:
    """The backend of a name, which leaves the first layers to the CPU if `gpu_layers` says so.

    `gpu_layers` counts the last layers, with the output as one more; "all" (or -1) are more than there are, and 0 is
    the CPU alone. With "auto", and without it, a GPU has as many as fit its free memory. `host` are options of the CPU.
    Raises RequestError for a number that makes no sense, or without a GPU.
    """
    _check(gpu_layers)
    if gpu_layers is None:
        made = make_backend(name, device=device, stream=stream, exact=exact, **host)
        if made.name not in GPUS:
            return made
        return _offload(make_backend("cpu", threads=host["threads"]), made, plan, wanted, name)
    if gpu_layers == 0:
        return make_backend(
            "cpu" if name in ("auto", *GPUS) else name, device=device, stream=stream, exact=exact, **host
        )
    asked, name = name, best({} if device is None else {"device": device}) if name == "auto" else name
    if name not in GPUS:
        if gpu_layers == "auto":
            return make_backend(name, device=device, stream=stream, exact=exact, **host)
        raise RequestError(
            f"gpu_layers is {gpu_layers!r} and backend={name!r} has no GPU: leave it out, or use backend='cuda'",
            "gpu_layers",
        )
    cpu, gpu = make_backend("cpu", **host), make_backend(name, device=device, stream=stream, exact=exact)
    if gpu_layers == "auto":
        return _offload(cpu, gpu, plan, wanted, asked)
    made = _divide(cpu, gpu, plan, count_layers(plan) + 1 if gpu_layers == "all" or gpu_layers < 0 else gpu_layers)
    try:
        made.parts(plan)
    except UnsupportedModel as error:
        message = f"gpu_layers is {gpu_layers}: {error}: give 'auto', 'all' or 0"
        raise RequestError(message, "gpu_layers") from error
    return made


def _check(gpu_layers: object) -> None:
    whole = isinstance(gpu_layers, int) and not isinstance(gpu_layers, bool) and gpu_layers >= -1
    if gpu_layers is not None and not whole and gpu_layers not in ("auto", "all"):
        message = f"gpu_layers is {gpu_layers!r}: it must be a number of layers, 'auto' or 'all'"
        raise RequestError(message, "gpu_layers")


def _divide(cpu: Backend, gpu: Backend, plan: Plan, gpu_layers: int) -> Backend:
    """The GPU, or both."""
    return SplitBackend(cpu, gpu, gpu_layers) if gpu_layers <= count_layers(plan) else gpu


def _offload(cpu: Backend, gpu: Backend, plan: Plan, wanted: Wanted, asked: str) -> Backend:
    """As many layers on the GPU as fit; the CPU alone if none does. Raises CapacityError if a GPU was `asked` for."""
    check_kv_type(gpu, wanted.kv_type)  # before its size is reckoned with
    free = gpu.free_bytes() - RESERVE
    for gpu_layers in range(count_layers(plan) + 1, 0, -1):
        made = _divide(cpu, gpu, plan, gpu_layers)
        try:
            _, part = made.parts(plan)[-1]
        except UnsupportedModel:  # not to be divided there
            continue
        if gpu.weight_bytes(weight_bytes(part)) + wanted.least(part) <= free:
            return made
    if asked != "auto":
        message = f"not one layer fits the {gpu.free_bytes()} bytes that are free on the GPU"
        raise CapacityError(f"{message}: free some, give a smaller context, or use backend='cpu'")
    return cpu


def weight_bytes(plan: Plan) -> int:
    """Bytes of a plan's weights, in the file."""
    return sum({w.name: w.data.nbytes for step in plan.steps for w in step.weights}.values())


def parts_of(backend: Backend, plan: Plan, whole: int) -> list[Part]:
    """The parts of a plan, whose weights are `whole` bytes in the file, on their devices."""
    parts = backend.parts(plan)
    if len(parts) == 1:
        return [Part(plan, backend.free_bytes(), backend.weight_bytes(whole))]
    return [Part(part, one.free_bytes(), one.weight_bytes(weight_bytes(part))) for one, part in parts]


def gpu_weight_bytes(backend: Backend, plan: Plan, whole: int) -> int:
    """Bytes of a plan's weights, `whole` in the file, that are in the memory of GPUs."""
    parts = backend.parts(plan)
    shares = [whole] if len(parts) == 1 else [weight_bytes(part) for _, part in parts]
    return sum(one.weight_bytes(share) for (one, _), share in zip(parts, shares, strict=True) if one.name in GPUS)
