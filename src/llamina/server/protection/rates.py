"""How much may be asked."""

import msgspec


class Rates(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How much may be asked; 0: as much as one likes."""

    requests: int = 0  # a minute
    tokens: int = 0  # a minute, read and made
    concurrent: int = 0  # requests and streams under way at a time
