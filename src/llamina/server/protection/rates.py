"""How much may be asked."""

from typing import Annotated

import msgspec
from msgspec import Meta


class Rates(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How much may be asked; 0: as much as one likes."""

    requests: Annotated[int, Meta(description="Requests a minute.", ge=0)] = 0
    tokens: Annotated[int, Meta(description="Tokens a minute, read and made.", ge=0)] = 0
    concurrent: Annotated[int, Meta(description="Requests and streams under way at a time.", ge=0)] = 0
