"""The settings of keys and tokens."""

from typing import Annotated

import msgspec
from msgspec import Meta

from llamina.server.caller import CLIENT_SCOPES
from llamina.server.protection.rates import Rates


class ApiKey(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A key by its hash: `llamina.server.protection.keys.hashed`, or `printf %s KEY | sha256sum`."""

    sha256: str
    name: str = ""
    scopes: list[str] = msgspec.field(default_factory=lambda: sorted(CLIENT_SCOPES))
    expires: int | None = None  # seconds since 1970
    rates: Rates | None = None  # None: those of every key


class Jwt(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Whose JSON Web Tokens are taken: HS256 by a secret, RS256 by a public key."""

    secret: Annotated[str, Meta(description="The secret of HS256, of at least 32 bytes.")] = ""
    public_key: Annotated[str, Meta(description="The public key of RS256: PEM, or the file that it is in.")] = ""
    audience: Annotated[str, Meta(description="The aud that a token must have.")] = ""
    issuer: Annotated[str, Meta(description="The iss that a token must have.")] = ""
    skew: Annotated[float, Meta(description="Seconds that clocks may differ.", ge=0)] = 60.0
