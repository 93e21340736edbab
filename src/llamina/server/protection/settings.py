"""The settings of keys and tokens."""

import msgspec

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

    secret: str = ""
    public_key: str = ""  # PEM, or the file that it is in
    audience: str = ""  # `aud` that a token must have
    issuer: str = ""  # `iss` that a token must have
    skew: float = 60.0  # seconds that clocks may differ
