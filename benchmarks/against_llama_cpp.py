"""Prompt and generation speed of llamina and llama.cpp (xllamacpp) on one file, interleaved.

python benchmarks/against_llama_cpp.py model.gguf --threads 2 --repeats 5 --json result.json
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import xllamacpp

import llamina


def peer(path: str, threads: int, context: int) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = path, context, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


def ask_peer(server: Any, tokens: list[int], n: int) -> dict[str, float]:
    request = {"prompt": tokens, "n_predict": n, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
    timings: dict[str, float] = server.handle_completions(request)["timings"]
    return timings


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--prompt", type=int, default=512)
    arguments.add_argument("--generate", type=int, default=128)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--json", type=Path)
    args = arguments.parse_args()
    context = args.prompt + args.generate + 64
    engine = llamina.load(args.model, threads=args.threads, context=context)
    server = peer(args.model, args.threads, context)
    rng, rates = np.random.default_rng(0), {"prompt": ([], []), "generate": ([], [])}
    for _ in range(args.repeats):
        tokens = [int(t) for t in rng.integers(100, min(engine.plan.vocab, 40000), args.prompt)]
        usage = engine.generate(tokens, max_tokens=1, temperature=0).usage
        rates["prompt"][0].append(usage.prompt_rate)
        rates["prompt"][1].append(ask_peer(server, tokens, 1)["prompt_per_second"])
        usage = engine.generate(tokens[:8], max_tokens=args.generate, temperature=0).usage
        rates["generate"][0].append(usage.completion_rate)
        rates["generate"][1].append(ask_peer(server, tokens[:8], args.generate)["predicted_per_second"])
    report = {}
    for what, (ours, theirs) in rates.items():
        a, b = statistics.median(ours), statistics.median(theirs)
        report[what] = {"llamina": a, "llama.cpp": b, "ratio": a / b, "runs": [ours, theirs]}
        print(f"{what:9} llamina {a:8.1f}  llama.cpp {b:8.1f} tokens/s  ratio {a / b:.2f}")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
