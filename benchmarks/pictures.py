"""A picture of 336 x 336 by CLIP ViT-L/14, in F16 and Q8_0: llamina beside llama.cpp's libmtmd, in turns.

    python benchmarks/pictures.py [--library llama.cpp/build/bin/libmtmd.so] [--layers 23] [--repeats 5]

Without a library of llama.cpp that was compiled for this CPU, xllamacpp's is used. Weights are random. Both have two
threads; llama.cpp's flash attention is on and off, and the faster one counts.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

import numpy as np  # noqa: E402

from llamina import vision  # noqa: E402
from llamina.backends import backend  # noqa: E402
from llamina.bench.machine import describe_machine  # noqa: E402
from llamina.engine.runner.load import weights_of  # noqa: E402
from llamina.gguf import open_model  # noqa: E402

WIDTH, FFN, HEADS, PATCH, SIDE = 1024, 4096, 16, 14, 336
OUT = 64  # of the tiny text model that llama.cpp wants beside an encoder
THREADS = 2


def write(path: Path, kind: str, layers: int) -> None:
    """The mmproj file; llama.cpp leaves the last layer out."""
    import gguf

    rng, w = np.random.default_rng(1), gguf.GGUFWriter(str(path), "clip")
    w.add_bool("clip.has_vision_encoder", True)
    w.add_string("clip.projector_type", "mlp")
    numbers = {"embedding_length": WIDTH, "feed_forward_length": FFN, "projection_dim": OUT, "block_count": layers + 1}
    numbers |= {"patch_size": PATCH, "image_size": SIDE, "attention.head_count": HEADS}
    for name, value in numbers.items():
        w.add_uint32(f"clip.vision.{name}", value)
    w.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    w.add_array("clip.vision.image_mean", [0.48, 0.46, 0.41])
    w.add_array("clip.vision.image_std", [0.27, 0.26, 0.28])

    def matrix(name: str, rows: int, columns: int) -> None:
        x = rng.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        if kind == "F16":
            w.add_tensor(name, x.astype(np.float16))
        else:
            q8 = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(name, gguf.quants.quantize(x, q8), raw_dtype=q8)

    def vector(name: str, size: int, mean: float = 0.0) -> None:
        w.add_tensor(name, (mean + 0.1 * rng.standard_normal(size)).astype(np.float32))

    for layer in range(layers + 1):
        block = f"v.blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            matrix(f"{block}{name}.weight", WIDTH, WIDTH)
            vector(f"{block}{name}.bias", WIDTH)
        for name in ("ln1", "ln2"):
            vector(f"{block}{name}.weight", WIDTH, 1.0)
            vector(f"{block}{name}.bias", WIDTH)
        for name, rows, columns in (("ffn_up", FFN, WIDTH), ("ffn_down", WIDTH, FFN)):
            matrix(f"{block}{name}.weight", rows, columns)
            vector(f"{block}{name}.bias", rows)
    vector("v.class_embd", WIDTH)
    w.add_tensor("v.patch_embd.weight", (rng.standard_normal((WIDTH, 3, PATCH, PATCH)) / 24).astype(np.float16))
    places = (SIDE // PATCH) ** 2 + 1
    w.add_tensor("v.position_embd.weight", (0.1 * rng.standard_normal((places, WIDTH))).astype(np.float32))
    for name in ("v.pre_ln", "v.post_ln"):
        vector(f"{name}.weight", WIDTH, 1.0)
        vector(f"{name}.bias", WIDTH)
    for name, columns in (("mm.0", WIDTH), ("mm.2", OUT)):
        matrix(f"{name}.weight", OUT, columns)
        vector(f"{name}.bias", OUT)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def compare(path: Path, repeats: int, flash: int) -> tuple[list[float], list[float], float]:
    """Seconds of each run by llamina and by llama.cpp, and the normalised error between their rows."""
    import llama_vision

    picture = np.random.default_rng(2).integers(0, 255, (SIDE, SIDE, 3), dtype=np.uint8)
    file = open_model(path)
    ours = vision.EncoderRunner(vision.build(file.metadata, weights_of(file)), backend("cpu", threads=THREADS))
    tile = ours.encoder.parts(vision.read_picture(picture))[0]
    rows = ours._run(tile).values
    text = ROOT / "tests" / "golden" / "stories260K.gguf"
    times: tuple[list[float], list[float]] = [], []
    with llama_vision.tokenized(text, path, llama_vision.MARKER, [picture], flash=flash) as (c, _, encoder, chunks):
        found = [c.mtmd_input_chunks_get(chunks, i) for i in range(c.mtmd_input_chunks_size(chunks))]
        chunk = next(one for one in found if c.mtmd_input_chunk_get_type(one) == 1)
        c.mtmd_encode_chunk(encoder, chunk)
        theirs = np.ctypeslib.as_array(c.mtmd_get_output_embd(encoder), rows.shape).copy()
        for _ in range(repeats):
            start = time.perf_counter()
            ours._run(tile)
            middle = time.perf_counter()
            c.mtmd_encode_chunk(encoder, chunk)
            times[0].append(middle - start)
            times[1].append(time.perf_counter() - middle)
    ours.close()
    return *times, float(np.square(rows - theirs).sum() / np.square(theirs).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="llama.cpp's libmtmd, with its other libraries beside it")
    parser.add_argument("--layers", type=int, default=23)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if asked.library:
        os.environ["LLAMA_LIBRARY"] = asked.library
    print(describe_machine()["cpu"], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("F16", "Q8_0"):
            path = Path(folder, f"{kind}.gguf")
            write(path, kind, asked.layers)
            runs = [compare(path, asked.repeats, flash) for flash in (0, 1)]
            ours = median(runs[0][0] + runs[1][0])
            theirs = [median(run[1]) for run in runs]
            print(
                f"{kind}: llamina {ours:.2f} s, llama.cpp {theirs[0]:.2f} s, with flash attention {theirs[1]:.2f} s: "
                f"{min(theirs) / ours:.2f}x; error {runs[0][2]:.1e}",
                flush=True,
            )
            path.unlink()


if __name__ == "__main__":
    main()
