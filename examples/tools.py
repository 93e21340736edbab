"""Python functions that the model calls. Their JSON schemas come from signatures and docstrings.

    python examples/tools.py
    python examples/tools.py "What is 1234 times 5678?"

Calls follow a grammar made of the schemas: arguments always fit. Small models call well, and seldom know when to stop.
"""

import argparse
import datetime

import llamina


def weekday(year: int, month: int, day: int) -> str:
    """The weekday of a date, such as Monday.

    Args:
        month: From 1 to 12.
    """
    return datetime.date(year, month, day).strftime("%A")


def multiply(a: float, b: float) -> float:
    """The product of two numbers."""
    return a * b


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default="On which weekday was the moon landing, 20 July 1969?")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--rounds", type=int, default=1, help="of calls, at the most")
    args = parser.parse_args()

    with llamina.load(args.model) as engine:
        run = engine.run_tools(
            args.question,
            [weekday, multiply],
            tool_choice="required",  # of the first answer; those that follow may do without
            max_rounds=args.rounds,
            max_tokens=120,
            temperature=0,
        )
    for message in run.messages:
        if message["content"]:
            print(f"{message['role']:>9}: {message['content']}")
        for call in message.get("tool_calls", ()):
            print(f"{'calls':>9}: {call['function']['name']} {call['function']['arguments']}")
    if run.result.tool_calls:
        print(f"It would call on: {run.rounds} is the limit (--rounds).")


if __name__ == "__main__":
    main()
