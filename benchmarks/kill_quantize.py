"""Kill `llamina quantize` at random moments, and check what is there afterwards.

    python benchmarks/kill_quantize.py MODEL [--type Q4_K_M] [--moments 10] [--seed 1] [--data DIR]

MODEL is an F16, BF16 or F32 file. It is quantized once without being disturbed; then each moment is a `kill -9` of the
same command, at any time between its first byte and its last. Nothing may be under the final name that is not whole;
the next run must give the same bytes, and leave nothing else in the folder.
"""

import argparse
import hashlib
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from kills import kill_once  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--type", default="Q4_K_M")
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    rng, killed, parts = random.Random(asked.seed), 0, 0
    with tempfile.TemporaryDirectory(dir=asked.data) as name:
        folder = Path(name)
        out = folder / "out.gguf"
        command = [sys.executable, "-m", "llamina", "quantize", str(asked.model), str(out), asked.type, "-q"]
        kill_once(command, folder, 3600, signal.SIGKILL)  # compiles what is needed
        out.unlink()
        start = time.monotonic()
        assert not kill_once(command, folder, 3600, signal.SIGKILL), "it failed by itself"
        whole, duration = _digest(out), time.monotonic() - start
        while killed < asked.moments:
            out.unlink(missing_ok=True)
            if kill_once(command, folder, rng.uniform(0, duration), signal.SIGKILL):
                killed += 1
            left = sorted(path.name for path in folder.iterdir())
            parts += any(path.endswith(".part") for path in left)
            assert not out.exists() or _digest(out) == whole, "a broken file has the final name"
            print(f"{killed} killed; there is {left}", flush=True)
        out.unlink(missing_ok=True)
        assert not kill_once(command, folder, 3600, signal.SIGKILL), "it failed by itself"
        assert _digest(out) == whole, "the last run made other bytes"
        assert [path.name for path in folder.iterdir()] == [out.name], "something was left"
    print(
        f"{killed} kills within {duration:.1f} s, {parts} of them left a part: no broken file, nothing left, same bytes"
    )


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    main()
