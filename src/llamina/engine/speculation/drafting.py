"""What a request's drafts came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from llamina.engine.speculation.draft_length import Chances
from llamina.engine.speculation.prompt_lookup import Lookup
from llamina.engine.speculation.shared_prefix import common

COPY_GUESSES = (0.75, 0.75, 0.75, 0.75, 0.8, 0.93, 0.97)  # before anything is known
MODEL_GUESS = (0.7,)


@dataclass(eq=False)
class Drafting:
    """The state of one request: its index, what was drafted last, how often drafts came true."""

    drafted: int = 0
    accepted: int = 0
    off: str = ""  # why nothing is drafted
    tokens: list[int] = field(default_factory=list)  # drafted for the next step
    lookup: Lookup = field(default_factory=Lookup)
    found: Chances = field(default_factory=Chances)  # of what was looked up
    copied: Chances = field(default_factory=lambda: Chances(COPY_GUESSES))  # of more from where much came from
    model: Chances = field(default_factory=lambda: Chances(MODEL_GUESS))  # of what a smaller model said
    _proposals: list[tuple[Chances, int, int, list[int]]] = field(default_factory=list)

    def propose(self, chances: Chances, matched: int, at: int, tokens: list[int]) -> None:
        """Remember what may come from position `at` on, to learn from what does come, be it drafted or not."""
        self._proposals.append((chances, matched, at, tokens))

    def learn(self, known: Sequence[int]) -> None:
        """Compare what was proposed with what came."""
        for chances, matched, at, tokens in self._proposals:
            for i, (token, came) in enumerate(zip(tokens, known[at:], strict=False)):
                chances.learn(matched + i, token == came)
                if token != came:
                    break
        self._proposals.clear()

    def verified(self, tokens: Sequence[int], made: Sequence[int]) -> None:
        """So many of the drafted tokens were what was made."""
        self.drafted += len(tokens)
        self.accepted += common(tokens, made)
