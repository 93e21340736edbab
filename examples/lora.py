"""LoRA adapters beside one model: the same question without, with each, and with all of them, in one batch.

    python examples/lora.py pirate.gguf brief.gguf=0.5 --model base.gguf --question "Who are you?"

Adapters are GGUF files or folders of PEFT, of the model that is given. They are not merged: requests choose their own,
with scales, and adapters come and go while others are answered.
"""

import argparse

import llamina


def adapter(text: str) -> tuple[str, float]:
    """`file` or `file=scale`."""
    path, _, scale = text.partition("=")
    return path, float(scale or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapters", nargs="+", type=adapter, metavar="FILE[=SCALE]")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--question", default="Who are you, and what do you like?")
    parser.add_argument("--max-tokens", type=int, default=60)
    args = parser.parse_args()

    with llamina.load(args.model) as engine:
        scales = {engine.load_adapter(path): scale for path, scale in args.adapters}
        mixes: list[dict[str, float]] = [{}, *({name: scale} for name, scale in scales.items())]
        if len(scales) > 1:
            mixes.append(scales)
        options = {"max_tokens": args.max_tokens, "temperature": 0}
        answers = [engine.stream_chat(args.question, adapters=mix, **options) for mix in mixes]  # all begin
        for mix, answer in zip(mixes, answers, strict=True):  # the first that is waited for computes them all
            label = " + ".join(f"{scale:g} × {name}" for name, scale in mix.items()) or "the model alone"
            print(f"── {label}\n{answer.result().text}\n")
        for name in scales:
            engine.unload_adapter(name)


if __name__ == "__main__":
    main()
