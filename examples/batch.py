"""Every line of a file is a question; answers are written as JSON lines. Sixteen are computed at a time.

    python examples/batch.py questions.txt > answers.jsonl
    python examples/batch.py questions.txt --system "Translate to French." --at-once 4

Any thread may ask an engine, and requests of all threads share its batches (continuous batching). For many files, or
work that must survive a crash, `llamina serve` has OpenAI's `/v1/batches`.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llamina


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    parser.add_argument("--system", default="Answer in one sentence.")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=100)
    args = parser.parse_args()
    questions = [line.strip() for line in args.file.read_text("utf-8").splitlines() if line.strip()]

    with llamina.load(args.model, max_sequences=args.at_once) as engine, ThreadPoolExecutor(args.at_once) as threads:

        def answer(question: str) -> llamina.Completion:
            messages = [{"role": "system", "content": args.system}, {"role": "user", "content": question}]
            return engine.chat(messages, max_tokens=args.max_tokens, temperature=0)

        begin, tokens = time.perf_counter(), 0
        for question, found in zip(questions, threads.map(answer, questions), strict=True):  # in the file's order
            tokens += found.usage.completion_tokens
            line = {"question": question, "answer": found.text, "finish_reason": found.finish_reason}
            print(json.dumps(line, ensure_ascii=False), flush=True)
        seconds = time.perf_counter() - begin
        print(f"{len(questions)} answers, {tokens} tokens, {tokens / seconds:.0f} a second", file=sys.stderr)


if __name__ == "__main__":
    main()
