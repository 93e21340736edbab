"""A request as bytes: put away, and taken up again in another process with the same bits.

8 bytes   magic
4         version, little-endian as all numbers
4         length of the header
16        BLAKE2b of the header and what follows it
header    JSON: the model, the layout of its states, the request
pages     keys and values of the computed tokens, page by page; those that windowed layers see; the recurrent states
"""

import base64
import hashlib
import json
import struct
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from llamina.engine.embedded import Embedded
from llamina.engine.request import Request
from llamina.engine.sequence import Sequence
from llamina.errors import RequestError, SnapshotError
from llamina.grammar import Triggers
from llamina.sampling import Sampling

MAGIC = b"LLAMINA\x1a"
VERSION = 5
LEFT_OUT = ("prompt", "embedded", "sampling", "triggers", "source")  # written on their own, or made of the others
HEAD = struct.Struct("<8sII16s")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds: plain values by name, and the bytes of states."""

    header: dict[str, Any]
    states: bytes = b""

    def pack(self) -> bytes:
        text = json.dumps(self.header, ensure_ascii=True).encode()
        return HEAD.pack(MAGIC, VERSION, len(text), _digest(text, self.states)) + text + self.states

    @classmethod
    def unpack(cls, data: bytes) -> "Snapshot":
        """Refuses anything that is not exactly what `pack` wrote."""
        if len(data) < HEAD.size or not data.startswith(MAGIC):
            raise SnapshotError(f"not a snapshot: it has {len(data)} bytes and begins with {bytes(data[:8])!r}")
        _, version, length, digest = HEAD.unpack_from(data)
        if version != VERSION:
            raise SnapshotError(f"the snapshot has version {version} and this is version {VERSION}: make it again")
        text, states = data[HEAD.size : HEAD.size + length], data[HEAD.size + length :]
        if _digest(text, states) != digest:
            raise SnapshotError("the snapshot is damaged: its checksum is wrong; use another copy of it")
        return cls(json.loads(text), states)

    def check_model(self, fingerprint: str) -> None:
        if self.header["model"] != fingerprint:
            raise SnapshotError(
                f"the snapshot belongs to another model ({self.header['name']}, {self.header['model']}, "
                f"not {fingerprint}): load that one"
            )


def _digest(*parts: bytes) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.digest()


def write_sequence(sequence: Sequence) -> dict[str, Any]:
    """A sequence as plain values. Raises RequestError for one that reads outputs or has a function in it."""
    request = sequence.request
    if request.reads is not None or request.logits_processor is not None:
        what = request.reading if request.reads is not None else "a logits_processor, a function"
        raise RequestError(f"a request with {what} cannot be put into a snapshot", "request")
    asked = {f.name: getattr(request, f.name) for f in fields(request) if f.name not in LEFT_OUT}
    sampling = asdict(request.sampling) | {"logit_bias": [*request.sampling.logit_bias.items()]}
    return {
        "prompt": list(request.prompt),
        "embedded": [[at, _write_rows(part)] for at, part in request.embedded.items()],
        "asked": asked | {"stop": list(request.stop), "markers": list(request.markers)},
        "sampling": sampling,
        "triggers": asdict(request.triggers) if request.triggers else None,
        "sampler": sequence.sampler.state() if sequence.sampler else None,
        "known": sequence.known,
        "generated": sequence.generated,
        "logprobs": sequence.logprobs.state(),
        "dropped": sequence.dropped,
        "cached": sequence.cached,
        "drafted": [sequence.drafting.drafted, sequence.drafting.accepted],
        "finish_reason": sequence.finish_reason,
    }


def _write_rows(part: Embedded) -> dict[str, Any]:
    """Rows of a prompt as plain values."""
    return {
        "rows": base64.b64encode(part.rows.tobytes()).decode(),
        "count": len(part),
        "positions": None if part.positions is None else part.positions.tolist(),
        "advance": part.advance,
        "whole": part.whole,
        "both_ways": part.both_ways,
        "key": part.key,
    }


def _read_rows(values: dict[str, Any]) -> Embedded:
    rows = np.frombuffer(base64.b64decode(values["rows"]), np.float32).reshape(values["count"], -1)
    others = {name: value for name, value in values.items() if name not in ("rows", "count")}
    return Embedded(rows, **_known(Embedded, others))


def _known(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values. Raises SnapshotError for those of another version: what they ask for cannot be left out."""
    if unknown := sorted(values.keys() - {each.name for each in fields(kind)}):
        message = f"the snapshot has {', '.join(unknown)} of a {kind.__name__}, which this version does not know"
        raise SnapshotError(f"{message}: restore it with the version that wrote it, or make it again")
    return values


def read_sequence(values: dict[str, Any]) -> Sequence:
    """The sequence, not yet prepared; `sampler` is left to whoever prepares it. Raises SnapshotError."""
    bias = {"logit_bias": dict(values["sampling"]["logit_bias"])}
    sampling = Sampling(**_known(Sampling, values["sampling"]) | bias)
    triggers = Triggers(**_known(Triggers, values["triggers"])) if values["triggers"] else None
    embedded = {at: _read_rows(part) for at, part in values["embedded"]}
    asked = _known(Request, values["asked"])
    request = Request(values["prompt"], sampling, triggers=triggers, embedded=embedded, **asked)
    sequence = Sequence(request)
    sequence.known = values["known"]
    sequence.output.tokens = values["generated"]
    sequence.logprobs.restore(values["logprobs"])
    sequence.dropped, sequence.cached = values["dropped"], values["cached"]
    sequence.finish_reason = values["finish_reason"]
    sequence.done = sequence.finish_reason is not None
    sequence.drafting.drafted, sequence.drafting.accepted = values["drafted"]
    return sequence
