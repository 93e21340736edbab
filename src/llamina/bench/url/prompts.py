"""Prompts for a server whose tokenizer is not at hand: random words of about as many tokens as asked, or a file's."""

import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from llamina.errors import RequestError

TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father "
    "power hour game line end member law car city name team minute idea kid body information back parent face level "
    "office door health person art war history party result change morning reason research girl guy moment air teacher"
)
WORDS = TEXT.split()
PROBES = (16, 116)  # words of the two prompts by which the tokens of a word are measured


def words(count: int, seed: int) -> str:
    """Random words; other seeds begin differently, so that no prefix cache knows them."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


async def words_for(tokens: int, count: Callable[[str], Awaitable[int]]) -> int:
    """How many words make a prompt of about `tokens` tokens; `count` tells the tokens of a prompt."""
    few, many = [await count(words(n, -1 - n)) for n in PROBES]
    each = max((many - few) / (PROBES[1] - PROBES[0]), 0.1)
    return max(1, round(PROBES[0] + (tokens - few) / each))


def read_dataset(path: Path) -> list[Any]:
    """The prompts of a JSONL file: texts, or lists of messages.

    A line is a string, or an object with `prompt`, `messages`, or ShareGPT's `conversations` (its first turn).
    Raises RequestError for a line that is none of these.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                found.append(_prompt(json.loads(line)))
            except (ValueError, KeyError, IndexError, TypeError):
                message = f"{path}:{number} has no prompt: give a string, or an object with prompt or messages"
                raise RequestError(message, "dataset") from None
    if not found:
        raise RequestError(f"{path} has no lines", "dataset")
    return found


def _prompt(line: Any) -> Any:
    if isinstance(line, str):
        return line
    if "messages" in line:
        return [{"role": message["role"], "content": message["content"]} for message in line["messages"]]
    prompt = line["prompt"] if "prompt" in line else line["conversations"][0]["value"]
    if not isinstance(prompt, str):
        raise TypeError
    return prompt
