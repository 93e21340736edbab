"""Questions asked at once of a server, by OpenAI's own client; whichever answer ends first is shown first.

    llamina serve smollm2
    python examples/client.py "Name a colour." "Count to twenty." "What is a llama?"

The server computes them in one batch. Needs `pip install openai`; any other server with OpenAI's API will do.
"""

import argparse
import asyncio
import time

from openai import AsyncOpenAI

QUESTIONS = ["Name a colour.", "What is the capital of Peru?", "Why is the sky blue?", "What is a llama?"]


async def ask(client: AsyncOpenAI, model: str, question: str, max_tokens: int) -> str:
    """A line about the question, when its answer has come."""
    begin, first, pieces = time.perf_counter(), 0.0, list[str]()
    stream = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=max_tokens, stream=True
    )
    async for chunk in stream:
        first = first or time.perf_counter() - begin
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    seconds = time.perf_counter() - begin
    return f"{question}  [first token {first:.2f} s, all {seconds:.2f} s]\n    {''.join(pieces).strip()}\n"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", default=QUESTIONS)
    parser.add_argument("--url", default="http://127.0.0.1:8080/v1")
    parser.add_argument("--model", default="smollm2", help="one of the server's models")
    parser.add_argument("--max-tokens", type=int, default=100)
    args = parser.parse_args()

    async with AsyncOpenAI(base_url=args.url, api_key="none") as client:
        asked = [ask(client, args.model, question, args.max_tokens) for question in args.questions]
        for answer in asyncio.as_completed(asked):
            print(await answer)


if __name__ == "__main__":
    asyncio.run(main())
