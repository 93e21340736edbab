"""JSON Web Tokens: whose they are, and what they allow. Each algorithm goes with a key of its own kind only."""

import hashlib
from pathlib import Path
from typing import Any

from llamina.errors import RequestError
from llamina.server.caller import SCOPES
from llamina.server.errors import ApiError
from llamina.server.protection.settings import Jwt

SHORTEST = 32  # bytes of a secret, as RFC 7518 wants it for HS256


class Tokens:
    """`read` gives a token's subject and scopes."""

    def __init__(self, settings: Jwt) -> None:
        """Raises RequestError for settings that protect nothing, or without the package that reads tokens."""
        try:
            import jwt
        except ImportError as error:
            raise RequestError("jwt is configured and PyJWT is missing: pip install llamina[jwt]", "jwt") from error
        self._jwt, self._settings = jwt, settings
        self._keys: dict[str, Any] = {}
        if settings.secret:
            if len(settings.secret.encode()) < SHORTEST:
                raise RequestError(f"jwt.secret is too short: must have at least {SHORTEST} bytes", "jwt.secret")
            self._keys["HS256"] = settings.secret
        if settings.public_key:
            self._keys["RS256"] = self._public(settings.public_key)
        if not self._keys:
            raise RequestError("jwt has neither a secret nor a public_key: give one", "jwt")

    def _public(self, given: str) -> Any:
        text = given if "BEGIN" in given else _contents(given)
        try:
            key = self._jwt.get_algorithm_by_name("RS256").prepare_key(text)
        except (ValueError, TypeError, self._jwt.PyJWTError) as error:
            message = "jwt.public_key is no RSA key: must be PEM with BEGIN PUBLIC KEY"
            raise RequestError(message, "jwt.public_key") from error
        if hasattr(key, "private_numbers"):
            raise RequestError("jwt.public_key is a private key: give the public one", "jwt.public_key")
        return key

    def read(self, token: str) -> tuple[str, frozenset[str]]:
        """(the caller's id, scopes) of a token. Raises ApiError if it is not valid, or not valid now."""
        settings, errors = self._settings, self._jwt
        try:
            algorithm = errors.get_unverified_header(token).get("alg")
            if not isinstance(algorithm, str) or algorithm not in self._keys:
                raise _refused(f"its alg must be {' or '.join(self._keys)}")
            claims = errors.decode(
                token,
                self._keys[algorithm],
                algorithms=[algorithm],
                audience=settings.audience or None,
                issuer=settings.issuer or None,
                leeway=settings.skew,
                options={"require": ["exp", "sub"]},
            )
        except errors.ExpiredSignatureError as error:
            raise _refused("it has expired") from error
        except errors.PyJWTError as error:
            raise _refused(str(error)) from error
        subject = f"{claims.get('iss', '')}\n{claims['sub']}"
        return "sub_" + hashlib.sha256(subject.encode()).hexdigest()[:32], _scopes(claims)


def looks_like_token(shown: str) -> bool:
    return shown.count(".") == 2


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    """`scope` as one text, or `scopes` or `scp` as a list; those that are not ours are somebody else's."""
    given = next((claims[name] for name in ("scope", "scopes", "scp") if name in claims), ())
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else ()
    return SCOPES & {word for word in words if isinstance(word, str)}


def _refused(why: str) -> ApiError:
    return ApiError(401, f"the token is not valid: {why}", "authentication_error", code="invalid_api_key")


def _contents(path: str) -> str:
    try:
        return Path(path).expanduser().read_text()
    except OSError as error:
        raise RequestError(f"jwt.public_key: {path} cannot be read: {error.strerror}", "jwt.public_key") from error
