"""Building a BPE tokenizer: merges given one by one, or learned from text."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Self

from llamina.errors import RequestError
from llamina.lm.tokenizer import PRE, BpeTokenizer, Pair, Vocab
from llamina.tokenizer.bpe import cuts
from llamina.tokenizer.pieces import byte_letters
from llamina.tokenizer.pretokenizers import pretokenizer

END = "<|endoftext|>"


class BpeBuilder:
    """Begins with the 256 bytes; each merge makes a new token of two. Methods return the builder itself."""

    def __init__(self) -> None:
        self._tokens = list(Vocab.gpt2_byte_vocab().tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self._merges: dict[Pair, None] = {}  # in order
        self._special: list[str] = []

    def add_merge(self, left: bytes, right: bytes) -> Self:
        """The next merge. Raises RequestError unless both are tokens already."""
        for part in (left, right):
            if part not in self._ids:
                raise RequestError(f"{part!r} is no token yet: merge its own parts first", "merges")
        if (left, right) in self._merges:
            raise RequestError(f"{left!r} and {right!r} are merged already", "merges")
        self._merges[left, right] = None
        if left + right not in self._ids:
            self._ids[left + right] = len(self._tokens)
            self._tokens.append(left + right)
        return self

    def add_special(self, name: str) -> Self:
        """A special token; they come after all others."""
        if name in self._special:
            raise RequestError(f"the special token {name!r} is there already", "name")
        self._special.append(name)
        return self

    def train(self, texts: str | Iterable[str], vocab_size: int, min_frequency: int = 2) -> Self:
        """Learn merges until there are `vocab_size` tokens (special ones not counted), or no pair is frequent enough.

        The most frequent pair of neighbours within words is merged, again and again. Of pairs that are as frequent, the
        one with the smaller tokens goes first.
        """
        if vocab_size < len(self._tokens):
            raise RequestError(
                f"vocab_size is {vocab_size}: there are {len(self._tokens)} tokens already", "vocab_size"
            )
        corpus = _Corpus([texts] if isinstance(texts, str) else texts, self._ids, self._merges)
        while len(self._tokens) < vocab_size:
            pair = corpus.most_frequent(min_frequency)
            if pair is None:
                break
            left, right = (self._tokens[token] for token in pair)
            self.add_merge(left, right)
            corpus.merge(pair, self._ids[left + right])
        return self

    def build(self, eos: str = END, bos: str | None = None) -> BpeTokenizer:
        """The tokenizer. The special tokens that end and begin a text are added if they are not there."""
        names = dict.fromkeys([*self._special, *([bos] if bos is not None else []), eos])
        vocab = Vocab(tuple(self._tokens)).with_extra_tokens((), names)
        return BpeTokenizer(vocab, list(self._merges), eos=eos, bos=bos)


class _Corpus:
    """The words of some texts as tokens, how often each occurs, and how often each pair of neighbours does."""

    def __init__(self, texts: Iterable[str], ids: dict[bytes, int], merges: Iterable[Pair]) -> None:
        split, letters = cuts(pretokenizer(PRE)), byte_letters()
        found = Counter(word for text in texts for word, _ in split.pre_tokenize_str(text))
        self._words = [[ids[bytes([letters[letter]])] for letter in word] for word in found]
        self._counts = list(found.values())
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._where: dict[tuple[int, int], set[int]] = defaultdict(set)  # pair → words that have it
        for index in range(len(self._words)):
            self._count(index, 1)
        for left, right in merges:
            self.merge((ids[left], ids[right]), ids[left + right])

    def _count(self, index: int, sign: int) -> None:
        for pair in pairwise(self._words[index]):
            self._pairs[pair] += sign * self._counts[index]
            if sign > 0:
                self._where[pair].add(index)

    def most_frequent(self, least: int) -> tuple[int, int] | None:
        """The pair to merge next; None if none occurs so often."""
        pair = max(self._pairs, key=lambda pair: (self._pairs[pair], -pair[0], -pair[1]), default=None)
        return pair if pair is not None and self._pairs[pair] >= max(least, 1) else None

    def merge(self, pair: tuple[int, int], token: int) -> None:
        """Put the token in the place of the pair, from left to right in every word."""
        for index in self._where.pop(pair, ()):
            self._count(index, -1)
            word, merged = self._words[index], list[int]()
            for part in word:
                # a pair that was merged ends with `token`, so what follows it cannot take its half
                if merged and (merged[-1], part) == pair:
                    merged[-1] = token
                else:
                    merged.append(part)
            self._words[index] = merged
            self._count(index, 1)
        self._pairs.pop(pair, None)
