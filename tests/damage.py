"""Damaged files for tests, made of good ones, and the memory that reading them takes."""

import random
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

READING = """
import pathlib, sys
from llamina.bench.memory import peak_bytes
from llamina.errors import RequestError
from llamina.{room} import Limits, read_{noun} as read

def read_all(pattern):
    for path in sorted(pathlib.Path(sys.argv[1]).glob(pattern)):
        try:
            read(path.read_bytes(), Limits({limits}))
        except RequestError:
            pass
    return peak_bytes() or 0

good = read_all("good-*")
print(read_all("bad-*") - good)
"""
BIG = (2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1)


def mutate(raw: bytes, rng: random.Random, header: int) -> bytes:
    """A few bytes changed, put in or taken out, mostly in the header; or cut off; or nothing but random bytes."""
    mutant = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(min(header, len(mutant)) if rng.random() < 0.9 else len(mutant))
        match rng.randrange(8):
            case 0 | 1:
                mutant[at] ^= 1 << rng.randrange(8)
            case 2:
                mutant[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 3:
                mutant[at:at] = rng.randbytes(rng.randint(1, 9))
            case 4:
                del mutant[at : at + rng.randint(1, 9)]
            case 5:
                mutant[at : at + 8] = struct.pack("<Q", rng.choice(BIG))
            case 6:
                mutant[at : at + 4] = struct.pack("<I", rng.randrange(2**32))
            case _ if rng.random() < 0.1:
                return bytes(mutant[:at]) if rng.random() < 0.5 else rng.randbytes(at)
    return bytes(mutant)


def damaged(data: bytes, count: int, header: range, parts: int = 1) -> Iterator[bytes]:
    """In turns: cut off, bits turned over, bytes repeated, a header of random bytes.

    What is left of a file that is cut off is within the first of so many equal parts.
    """
    rng = np.random.default_rng(6)
    for i in range(count):
        found, at = bytearray(data), int(rng.integers(0, len(data)))
        if i % 4 == 0:
            found = found[: at // parts]
        elif i % 4 == 1:
            for place in rng.integers(0, len(data), 8):
                found[place] ^= 1 << int(rng.integers(0, 8))
        elif i % 4 == 2:
            found[at:at] = found[: int(rng.integers(1, 64))]
        else:
            found[header.start : header.stop] = rng.bytes(len(header))
        yield bytes(found)


def growth(room: str, noun: str, limits: str, good: Iterable[bytes], bad: Iterable[bytes], folder: Path) -> int:
    """By how many bytes a process's peak of resident memory grows over bad files, after it has read good ones.

    What decoders in C allocate counts as well.
    """
    for kind, contents in (("good", good), ("bad", bad)):
        for i, data in enumerate(contents):
            (folder / f"{kind}-{i:04}").write_bytes(data)
    code = READING.format(room=room, noun=noun, limits=limits)
    return int(subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True).stdout)
