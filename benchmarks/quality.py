"""Quality against size: quantize a model in many ways, and compare each with the model as it was.

    python benchmarks/quality.py MODEL --text TEXT [--calibration TEXT] [--types Q8_0,Q4_K_M] [--auto 4.5,5]
        [--chunks 8] [--window 512] [--json OUT] [--plot PNG] [--data DIR]

MODEL is an F16, BF16 or F32 file, or a quantized one that is widened to F16 first: then figures tell of the loss beside
the quantized file, not beside the original. With --calibration an importance matrix is measured on that text and used
for all types. --auto are targets of `llamina auto-quantize`, with sensitivities measured on the calibration text;
--exclude are types that it must not choose, such as those a widened file came from. Prints a Markdown table.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import llamina
from llamina.bench.divergence import measure_divergence, save_logits
from llamina.bench.saved_logits import SavedLogits
from llamina.bench.sensitivity import measure_sensitivities
from llamina.gguf import open_model
from llamina.quantization import Imatrix, Quantized
from llamina.quantization.auto import SMALL_BLOCKS, SUPER_BLOCKS

TYPES = "Q8_0,Q6_K,Q5_K_M,Q4_K_M,Q4_K_S,IQ4_XS,Q4_0,Q3_K_M,IQ3_S,Q2_K"
HEADER = "| type | MB | bits per weight | perplexity | KL divergence | KL, 99 % | same top token |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--auto", default="")
    parser.add_argument("--exclude", default="")
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--calibration-chunks", type=int, default=16)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.data) as folder:
        record = Table(asked, Path(folder)).record()
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=2), encoding="utf-8")
    if asked.plot:
        draw(record, asked.model.name, asked.plot)


class Table:
    """The rows of one model, each printed when it is measured."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.rows: list[dict[str, Any]] = []

    def record(self) -> list[dict[str, Any]]:
        asked = self.asked
        base, saved = self._widened(), self.folder / "base.logits"
        imatrix, sensitivities = self._calibrated(base)
        with llamina.load(base, context=asked.window, progress=silent) as engine:
            text = asked.text.read_text(encoding="utf-8").removesuffix("\n")
            found = save_logits(engine, text, asked.window, saved, lambda done, total: None, chunks=asked.chunks)
        print(f"{HEADER}\n|{' --- |' * HEADER.count(' | ')} --- |", flush=True)
        self._add("as it was", base.stat().st_size, bits(base), {"perplexity": found.estimate.perplexity})
        for name in filter(None, asked.types.split(",")):
            made = llamina.quantize(base, self.folder / "out.gguf", name, imatrix=imatrix, overwrite=True)
            self._measure(name, made, saved)
        excluded = asked.exclude.upper().split(",")
        types = [name for name in dict.fromkeys(SUPER_BLOCKS + SMALL_BLOCKS) if name not in excluded]
        for target in filter(None, asked.auto.split(",")):
            made = llamina.auto_quantize(
                base, self.folder / "out.gguf", float(target), imatrix=imatrix, sensitivities=sensitivities,
                types=types if excluded != [""] else (), overwrite=True,
            )  # fmt: skip
            self._measure(f"auto {target}", made, saved)
        return self.rows

    def _widened(self) -> Path:
        with open_model(self.asked.model) as file:
            if all(tensor.type.block == 1 for tensor in file.tensors.values()):
                return Path(self.asked.model)
        return llamina.quantize(self.asked.model, self.folder / "F16.gguf", "F16", requantize=True).path

    def _calibrated(self, base: Path) -> tuple[Imatrix | None, dict[str, float] | None]:
        asked = self.asked
        if asked.calibration is None:
            return None, None
        text = asked.calibration.read_text(encoding="utf-8").removesuffix("\n")
        with llamina.load(base, context=asked.window, backend="cpu", progress=silent) as engine:
            found = llamina.imatrix(engine, text, chunk_size=asked.window, chunks=asked.calibration_chunks)
        if not asked.auto:
            return found, None
        with open_model(base) as file:
            return found, measure_sensitivities(file, text, imatrix=found, size=asked.window)

    def _measure(self, name: str, made: Quantized, saved: Path) -> None:
        with llamina.load(made.path, context=self.asked.window, progress=silent) as engine:
            facts = measure_divergence(engine, SavedLogits(saved), lambda done, total: None).facts
        self._add(name, made.path.stat().st_size, made.bits_per_weight, facts)

    def _add(self, name: str, nbytes: int, bits_per_weight: float, facts: dict[str, Any]) -> None:
        self.rows.append({"type": name, "bytes": nbytes, "bits_per_weight": bits_per_weight, **facts})
        kl, same = facts.get("kl"), facts.get("same_top")
        parts = [name, f"{nbytes / 1e6:.1f}", f"{bits_per_weight:.2f}", f"{facts['perplexity']:.3f}"]
        parts += [f"{kl['mean']:.4f}", f"{kl['percentiles']['99']:.3f}"] if kl else ["0", "0"]
        parts.append(f"{100 * same['mean']:.1f} %" if same else "100 %")
        print(f"| {' | '.join(parts)} |", flush=True)


def bits(path: Path) -> float:
    with open_model(path) as file:
        numbers = sum(tensor.nbytes // tensor.type.nbytes * tensor.type.block for tensor in file.tensors.values())
        return 8 * sum(tensor.nbytes for tensor in file.tensors.values()) / numbers


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def draw(record: list[dict[str, Any]], title: str, path: Path) -> None:
    """Write a PNG with the KL divergence of each type over its size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    panel = figure.subplots()
    for auto, color in ((False, "C0"), (True, "C1")):
        rows = [row for row in record if "kl" in row and row["type"].startswith("auto") == auto]
        x, y = [row["bits_per_weight"] for row in rows], [row["kl"]["mean"] for row in rows]
        panel.plot(x, y, "o", color=color, label="auto-quantize" if auto else "file types")
        for row in rows:
            panel.annotate(row["type"], (row["bits_per_weight"], row["kl"]["mean"]), fontsize=8)
    panel.set(title=title, xlabel="bits per weight", ylabel="KL divergence", yscale="log")
    panel.legend()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
