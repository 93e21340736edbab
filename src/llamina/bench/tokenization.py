"""How fast text becomes tokens and tokens text, beside the packages `tokenizers` and `tiktoken` where they can."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from llamina.bench.machine import header, package_version
from llamina.gguf import open_model
from llamina.tokenizer import Tokenizer
from llamina.tokenizer.bpe import cuts
from llamina.tokenizer.pieces import byte_letters
from llamina.tokenizer.pretokenizers import Pretokenizer, pretokenizer

PEERS = ("tokenizers", "tiktoken")
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A way to encode and decode."""

    engine: str
    encode: Encode
    decode: Callable[[Sequence[int]], str]


def sample_text() -> str:
    """Some hundred kilobytes of English and code that every Python has: the help texts of its language."""
    from pydoc_data.topics import topics

    return "\n".join(topics.values())


def measure_tokenizer(path: Path, text: str, repeats: int, command: str, tick: Callable[[str], None]) -> dict[str, Any]:
    """The record of a measurement: the whole text at once, its lines one by one, and back again.

    Peers get the vocabulary, merges and expressions of the file; `missing` says why one does not take part.
    """
    beginning, file = header("tokenizer", command), open_model(path)
    ours = Tokenizer.from_metadata(file.metadata)
    entrants = [Entrant("llamina", lambda part: ours.encode(part, add_special=False), ours.decode)]
    missing = {}
    for name in PEERS:
        found = _peer(name, file.metadata)
        if isinstance(found, str):
            missing[name] = found
        else:
            entrants.append(found)
    lines = [line for line in text.split("\n") if line]
    results = _measure("encode text", entrants, [text], repeats, tick)
    results += _measure("encode lines", entrants, lines, repeats, tick)
    results += _measure("decode text", entrants, [text], repeats, tick, decode=True)
    size = len(text.encode())
    settings = {"bytes": size, "lines": len(lines), "repeats": repeats}
    return {
        **beginning,
        "file": {"path": str(path), "name": path.name},
        "settings": settings,
        "vocabulary": {"model": file.metadata.get("tokenizer.ggml.model"), "tokens": ours.vocab_size},
        "versions": {name: package_version(name) for name in PEERS},
        "missing": missing,
        "results": results,
    }


def _measure(
    name: str,
    entrants: Sequence[Entrant],
    texts: Sequence[str],
    repeats: int,
    tick: Callable[[str], None],
    decode: bool = False,
) -> list[dict[str, Any]]:
    """A result for each way, run by run in turns; those of llamina have the `ratio` to each peer."""
    tokens = {e.engine: [e.encode(text) for text in texts] for e in entrants}
    runs: dict[str, list[float]] = {e.engine: [] for e in entrants}
    for i in range(repeats):
        for entrant in entrants:
            tick(f"{name}: {entrant.engine}, run {i + 1} of {repeats}")
            start = time.perf_counter()
            if decode:
                for ids in tokens[entrant.engine]:
                    entrant.decode(ids)
            else:
                for text in texts:
                    entrant.encode(text)
            runs[entrant.engine].append(time.perf_counter() - start)
    size, rates = sum(len(text.encode()) for text in texts), {}
    for engine, seconds in runs.items():
        rates[engine] = size / 1e6 / median(seconds)
    results = []
    for engine, seconds in runs.items():
        count = sum(map(len, tokens[engine]))
        results.append(
            {
                "name": name,
                "engine": engine,
                "rate": rates[engine],
                "unit": "MB/s",
                "tokens": count,
                "tokens_per_second": count / median(seconds),
                "ratio": rates["llamina"] / rates[engine],
                "seconds": seconds,
            }
        )
    return results


def _peer(name: str, metadata: Mapping[str, Any]) -> Entrant | str:
    """The package with the file's vocabulary, or why it has no part."""
    if not find_spec(name):
        return f"not installed: pip install {name}"
    if metadata.get("tokenizer.ggml.model") != "gpt2":
        return f"the vocabulary is {metadata.get('tokenizer.ggml.model')}: only byte-level BPE can be handed over"
    rules = pretokenizer(str(metadata.get("tokenizer.ggml.pre", "")))
    tokens, merges = list(metadata["tokenizer.ggml.tokens"]), list(metadata["tokenizer.ggml.merges"])
    return _tokenizers(rules, tokens, merges) if name == "tokenizers" else _tiktoken(rules, tokens, merges)


def _tokenizers(rules: Pretokenizer, tokens: list[str], merges: list[str]) -> Entrant | str:
    from tokenizers import Tokenizer as Rust
    from tokenizers.decoders import ByteLevel
    from tokenizers.models import BPE

    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        rust = Rust(BPE({text: token for token, text in enumerate(tokens)}, pairs, ignore_merges=rules.ignore_merges))
    except Exception as error:  # merges of tokens that are missing: the package's own kind of error
        return f"it does not take the vocabulary: {error}"
    rust.pre_tokenizer, rust.decoder = cuts(rules), ByteLevel()
    return Entrant(
        "tokenizers", lambda text: rust.encode(text, add_special_tokens=False).ids, lambda ids: str(rust.decode(ids))
    )


def _tiktoken(rules: Pretokenizer, tokens: list[str], merges: list[str]) -> Entrant | str:
    """Ranks are the order of the merges, so its ids are others; as many tokens come of a text."""
    import tiktoken

    if len(rules.patterns) > 1:
        return f"the vocabulary splits text by {len(rules.patterns)} expressions: it takes one"
    letters = byte_letters()
    ranks = {bytes([value]): value for value in range(256)}
    for merge in merges:
        spelled = merge.replace(" ", "")
        ranks.setdefault(bytes(letters[letter] for letter in spelled), len(ranks))
    try:
        encoding = tiktoken.Encoding("file", pat_str=rules.patterns[0], mergeable_ranks=ranks, special_tokens={})
    except Exception as error:  # an expression that its engine does not know
        return f"it does not take the expression: {error}"
    return Entrant("tiktoken", encoding.encode_ordinary, encoding.decode)
