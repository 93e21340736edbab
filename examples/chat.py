"""A conversation in the terminal. Answers stream; what was said before is read from the KV cache, not computed again.

    python examples/chat.py
    python examples/chat.py --model smollm2 --system "You are a pirate."

An empty line ends it. `llamina chat` does the same with history, Markdown, files and tools.
"""

import argparse
from contextlib import suppress

import llamina


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--system", default="You are a helpful assistant. Answer briefly.")
    parser.add_argument("--max-tokens", type=int, default=512, help="of one answer")
    args = parser.parse_args()

    with llamina.load(args.model) as engine, suppress(EOFError):
        session = llamina.Session(engine, [{"role": "system", "content": args.system}])
        for question in iter(lambda: input("> "), ""):
            turn = session.ask(question, max_tokens=args.max_tokens)
            for delta in turn:
                print(delta, end="", flush=True)
            usage = turn.usage
            print(f"\n  {usage.completion_tokens} tokens, {usage.completion_rate:.0f} a second;", end=" ")
            print(f"{usage.cached_tokens} of the prompt's {usage.prompt_tokens} were in the KV cache\n")


if __name__ == "__main__":
    main()
