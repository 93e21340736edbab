"""A story that is told a few tokens at a time, each time by another process. Run it again, and it goes on.

    python examples/snapshot.py --prompt "Once upon a time there was a llama who"
    python examples/snapshot.py
    python examples/snapshot.py

Between runs, the sequence is a file: its tokens, its KV cache and the state of its sampler. Nothing is computed twice,
and the text is what one long run would have told.
"""

import argparse
from itertools import islice
from pathlib import Path

import llamina


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", help="begin another story")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--file", type=Path, default=Path("story.snapshot"))
    parser.add_argument("--steps", type=int, default=40, help="of this run")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    with llamina.load(args.model) as engine:
        if args.prompt is None and args.file.exists():
            sequence = engine.resume(args.file.read_bytes())
            print(engine.tokenizer.decode(sequence.known), end="|", flush=True)
            story = engine.follow(sequence)
        else:
            prompt = args.prompt or "Once upon a time"
            print(prompt, end="", flush=True)
            story = engine.stream(prompt, seed=args.seed, max_tokens=None)
        for delta in islice(story, args.steps):
            print(delta, end="", flush=True)
        data = engine.snapshot(story.sequence)
        args.file.write_bytes(data)
        print(f"\n\n{len(story.sequence.known)} tokens are in {args.file}, {len(data) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
