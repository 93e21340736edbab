"""Speculative decoding: tokens are drafted, and several verified in one step. The answer is the same, only sooner.

    python examples/speculation.py
    python examples/speculation.py --model qwen2.5-coder-1.5b --draft qwen2.5-coder-0.5b

Prompt lookup drafts what followed the same words before, and costs nothing: good for code and for quoting. A draft
model, with the same vocabulary and best a tenth of the size, drafts anything. Nothing is drafted where it does not pay.
"""

import argparse

import llamina

CODE = '''
def area(shape):
    """The area of a shape, which must be a circle, a square or a rectangle."""
    if shape.kind == "circle":
        return 3.14159 * shape.radius * shape.radius
    if shape.kind == "square":
        return shape.side * shape.side
    return shape.width * shape.height
'''


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--draft", help="a smaller model with the same vocabulary")
    parser.add_argument("--prompt", default=f"{CODE}\n# The same function, with `figure` for `shape`:\n")
    parser.add_argument("--max-tokens", type=int, default=120)
    args = parser.parse_args()

    with llamina.load(args.model, draft=args.draft) as engine:
        engine.generate(args.prompt, max_tokens=1)  # so that all find the prompt in the KV cache
        texts = set()
        print("speculate   tokens/s   drafted   accepted")
        for mode in ("off", "ngram", *(["draft"] if args.draft else [])):
            answer = engine.generate(args.prompt, speculate=mode, max_tokens=args.max_tokens, temperature=0)
            usage = answer.usage
            share = f"{usage.accepted_tokens} ({usage.acceptance_rate:.0%})" if usage.drafted_tokens else "-"
            print(f"{mode:9} {usage.completion_rate:10.0f} {usage.drafted_tokens:9} {share:>10}")
            texts.add(answer.text)
    print(f"\n{'the same text each time' if len(texts) == 1 else 'texts that differ'}:\n{texts.pop()}")


if __name__ == "__main__":
    main()
