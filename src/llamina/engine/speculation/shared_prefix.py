"""What two lists of tokens begin with."""

from collections.abc import Sequence


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
