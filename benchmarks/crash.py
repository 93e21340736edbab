"""Kill a server at random moments of batches, background responses and uploads, and check what the next one has.

    python benchmarks/crash.py MODEL [--moments 20] [--lines 2000] [--seed 1] [--data DIR]

MODEL is a small GGUF file, such as stories260K. Each moment is a `kill -9` of `llamina serve`: uploads go on all the
time, responses are made in the background, and a batch is under way; when one has ended the next begins; some servers
are killed as they start. After each restart everything that was acknowledged must be there and whole, and no answer of
a batch and no response may be lost, replaced or given twice.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "server")]

from crashes import Scene  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    asked = parser.parse_args()
    moments, batches, files, responses, cut = Counter[str](), 0, 0, 0, 0
    with tempfile.TemporaryDirectory(dir=asked.data) as folder:
        while moments.total() < asked.moments:
            scene = Scene(asked.model.resolve(), Path(folder, str(batches)), asked.lines, asked.seed + batches)
            while not scene.kill_once():
                if len(scene.kills) % 4 == 0:
                    scene.kill_at_start()
                told = f"{len(scene.files)} files and {len(scene.responses)} responses told"
                print(f"{scene.kills}, {len(scene.kept)} lines kept, {told}", flush=True)
                if moments.total() + len(scene.kills) >= asked.moments:
                    break
            scene.finish()
            moments.update(scene.kills)
            batches, files, responses = batches + 1, files + len(scene.files), responses + len(scene.responses)
            cut += scene.interrupted
    done = f"{batches} batches, {files} files, {responses} responses, {cut} times one under way"
    print(f"{moments.total()} kills ({dict(moments)}), {done}: nothing lost, nothing twice")


if __name__ == "__main__":
    main()
