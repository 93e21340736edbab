"""What one step did for a sequence, as streams tell it."""

from dataclasses import dataclass
from typing import Literal

from llamina.sampling import TokenLogprob

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Delta:
    """New tokens and the text they completed; the last delta of a sequence has a finish reason.

    Text may lag behind tokens: half a character, and what may become a stop string, is held back. A delta without
    tokens tells how far the prompt is computed.
    """

    id: int  # of the sequence
    tokens: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob | None, ...] | None = None  # of the tokens, if they were asked for
    finish_reason: FinishReason | None = None
    computed: int = 0  # tokens in the KV cache
    prompt_tokens: int = 0

    def __str__(self) -> str:
        return self.text
