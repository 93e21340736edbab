"""A text of which llama.cpp's figures are known: 100 sentences."""

from itertools import product

WHO = ("The little girl", "A big dog", "Tim", "The old cat", "Her friend Lily")
DID = ("went to", "was happy at", "played in", "saw a bird near", "ran home from")
WHERE = ("the park.", "the shop.", "a red house.", "the tall tree.")
TALE = "\n".join(f"{who} {did} {where}" for who, did, where in product(WHO, DID, WHERE))
