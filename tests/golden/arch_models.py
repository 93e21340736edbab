"""Write the tiny model of each architecture in archs.json, as a GGUF file of F32 weights.

    python tests/golden/arch_models.py FOLDER [NAME ...]

The shapes and the metadata come from archs.json, the weights from a fixed generator: the files are the same everywhere.
arch_logits.npz holds llama.cpp's logits for exactly these files.
"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import gguf

HERE = Path(__file__).parent


def weight(name: str, shape: list[int], seed: int = 1) -> npt.NDArray[np.float32]:
    """A tensor's values. They depend on its name, its shape (GGUF's order, fastest first) and the seed alone."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode()) ^ (seed * 0x9E3779B1 & 0xFFFFFFFF)))
    x = rng.standard_normal(shape[::-1], dtype=np.float32)
    parts = name.split(".")
    if "norm" in name and parts[-1] == "weight":
        return 1 + 0.1 * x
    if "rope_f" in name or "act.scales" in name:  # divisors
        return 1 + 0.5 * np.abs(x)
    if "ssm_a" in parts:
        return -np.exp(0.5 * x)
    if parts[-1] == "scale":
        return 1 + 0.1 * x
    if parts[-1] == "bias" or len(shape) == 1:
        return 0.1 * x
    if name == "token_embd.weight":
        return x
    return x * np.float32(1.5 / np.sqrt(shape[0]))


def write(spec: dict[str, Any], path: Path) -> None:
    """Write the model of one entry of archs.json."""
    kinds = gguf.GGUFValueType
    writer = gguf.GGUFWriter(path, spec["arch"])
    for key, (kind, value) in spec["metadata"].items():
        if key == "general.architecture":  # the writer has it already
            continue
        kind, _, element = kind.partition(":")  # "ARRAY:INT32"
        writer.add_key_value(key, value, kinds[kind], sub_type=kinds[element] if element else None)
    for name, shape in spec["tensors"]:
        writer.add_tensor(name, weight(name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    specs = json.loads((HERE / "archs.json").read_text(encoding="utf-8"))
    for name in names or specs:
        write(specs[name], Path(folder) / f"{name}.gguf")


if __name__ == "__main__":
    main()
