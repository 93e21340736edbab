"""Results as tensors of PyTorch, which is imported here alone and only when it is asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from llamina.engine.request import Request
from llamina.engine.tasks import scoring
from llamina.engine.tasks.pooling import Array
from llamina.errors import RequestError

if TYPE_CHECKING:
    from torch import Tensor

    from llamina.engine.engine import Engine
    from llamina.engine.tasks.scoring import Scales


def tensor_of(array: Array) -> "Tensor":
    """A tensor over the array's own memory, by DLPack. Raises RequestError if PyTorch is not installed."""
    found: Tensor = _torch().from_dlpack(array)
    return found


def logits(engine: "Engine", tokens: Sequence[int], adapters: "Scales | None") -> "Tensor":
    """Logits after every token, [tokens, vocab], on the device that computes them."""
    torch = _torch()
    request = Request(tokens, reads=range(len(tokens)), adapters=adapters or {})
    (parts,) = scoring.read_parts(engine, [request], sink=lambda array, start, stop: _copied(torch, array, start, stop))
    if isinstance(parts[0], np.ndarray):
        return tensor_of(np.concatenate(parts))
    found: Tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
    return found


def _copied(torch: Any, array: Any, start: int, stop: int) -> "Tensor":
    """Rows of a GPU's array, which the next step overwrites: both streams wait for each other, the host does not."""
    there = torch.as_tensor(array, device=torch.device("cuda", array.device))
    theirs = torch.cuda.ExternalStream(array.stream, device=there.device)
    ours = torch.cuda.current_stream(there.device)
    ours.wait_stream(theirs)
    copy: Tensor = there[start:stop].clone()
    theirs.wait_stream(ours)
    return copy


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise RequestError("PyTorch is not installed: pip install torch, or take the NumPy array") from error
    return torch
