"""Tokens as they come, coloured by their probability: green is certain, red is a guess.

    python examples/stream.py
    python examples/stream.py "The best thing about llamas is" --temperature 1.2 --seed 7

In the end: where the model was least certain, and what else it could have said.
"""

import argparse
from math import exp

import llamina

GREEN, YELLOW, RED = 32, 33, 31  # of terminals


def colour(probability: float) -> int:
    return GREEN if probability > 0.5 else YELLOW if probability > 0.1 else RED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="The three primary colours are")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--max-tokens", type=int, default=80)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    args = parser.parse_args()
    sampling = {"temperature": args.temperature, "seed": args.seed, "max_tokens": args.max_tokens}

    with llamina.load(args.model) as engine:
        print(args.prompt, end="", flush=True)
        stream, seen = engine.stream(args.prompt, logprobs=3, **sampling), []
        for delta in stream:
            tokens = [token for token in delta.logprobs or () if token]
            likely = exp(min((token.logprob for token in tokens), default=0.0))
            print(f"\033[{colour(likely)}m{delta}\033[0m", end="", flush=True)
            seen += tokens
        print(f"\n\n{stream.usage.completion_rate:.0f} tokens a second. The least certain:")
        for token in sorted(seen, key=lambda token: token.logprob)[:5]:
            others = [f"{engine.tokenizer.decode([id])!r} {exp(logprob):.0%}" for id, logprob in token.top]
            print(f"{exp(token.logprob):5.0%} {engine.tokenizer.decode([token.token])!r:14} of {', '.join(others)}")


if __name__ == "__main__":
    main()
