"""API keys: those of the configuration, and those that were made at run time. Only hashes of them are kept."""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass

from llamina.errors import RequestError
from llamina.server.caller import CLIENT_SCOPES, SCOPES
from llamina.server.config import Config
from llamina.server.protection.rates import Rates
from llamina.server.protection.settings import ApiKey
from llamina.server.store import Kept, Store

KIND = "key"  # in the store
REVOKED = "revoked"
FRESH = 10.0  # seconds after which the store is asked again: another server may have revoked a key
HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Key:
    """A key that is known."""

    id: str
    sha256: str
    scopes: frozenset[str]
    expires: int | None = None
    rates: Rates | None = None


def new_key() -> str:
    """256 random bits, for a client to keep."""
    return "sk-llamina-" + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """The SHA-256 of a key, in hexadecimal. A key is random, so there is nothing to guess, and no salt is needed."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes as a set. Raises RequestError for one that there is not."""
    found = frozenset(scopes)
    if unknown := sorted(found - SCOPES):
        known = ", ".join(sorted(SCOPES))
        raise RequestError(f"scopes has {unknown[0]!r}: known are {known}", "scopes")
    return found


class Keys:
    """`find` gives the key that a client has shown. Whether any is needed: `required`."""

    def __init__(self, config: Config) -> None:
        """Raises RequestError for a key in the configuration that is none."""
        self._configured = [_given(text, CLIENT_SCOPES, "api_keys") for text in config.api_keys]
        self._configured += [_described(key) for key in config.keys]
        self._jwt = config.jwt is not None
        if config.admin_key:
            self._configured.append(_given(config.admin_key, SCOPES, "admin_key"))
        self._made: list[Key] = []
        self._ever_made = False
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    @property
    def required(self) -> bool:
        """Whether a caller must show a key or a token: as soon as there is any, also when all are revoked again."""
        return bool(self._configured) or self._jwt or self._ever_made

    @property
    def for_admins(self) -> bool:
        """Whether there is something that an administrator can show."""
        return self._jwt or any("admin:write" in key.scopes for key in (*self._configured, *self._made))

    async def refresh(self, store: Store, now: bool = False) -> None:
        """Read the keys that were made at run time, if that was some time ago. Nobody is let in before it is done."""
        if self._is_fresh and not now:
            return
        async with self._reading:
            if now or not self._is_fresh:
                self._take(await store.all(KIND))
                self._read_at = time.monotonic()

    @property
    def _is_fresh(self) -> bool:
        return self._read_at is not None and time.monotonic() - self._read_at < FRESH

    def _take(self, kept: list[Kept]) -> None:
        self._ever_made = bool(kept)
        self._made = [
            Key(
                one.id,
                one.body["sha256"],
                frozenset(one.body["scopes"]),
                one.body["expires"],
                Rates(**one.body["rates"]) if one.body["rates"] is not None else None,
            )
            for one in kept
            if one.status != REVOKED
        ]

    def find(self, shown: str) -> Key | None:
        """The key that is shown, unless it has expired. Every known hash is compared, each in constant time."""
        mine, found = hashed(shown).encode(), None
        for key in (*self._configured, *self._made):
            if hmac.compare_digest(mine, key.sha256.encode()):
                found = key
        if found is not None and found.expires is not None and found.expires <= time.time():
            return None
        return found


def _given(text: str, scopes: frozenset[str], param: str) -> Key:
    kind, _, value = text.partition(":")
    sha256 = value if kind == "sha256" else hashed(text)
    if not HASH.fullmatch(sha256) or not text.strip():
        message = f"{param} has a hash that is none: must be a key, or sha256: and 64 hexadecimal digits"
        raise RequestError(message, param)
    return Key(_id(sha256), sha256, scopes)


def _described(key: ApiKey) -> Key:
    if not HASH.fullmatch(key.sha256):
        message = f"the key {key.name!r} has a sha256 that is none: must be 64 hexadecimal digits"
        raise RequestError(message, "keys")
    return Key(_id(key.sha256), key.sha256, check_scopes(key.scopes), key.expires, key.rates)


def _id(sha256: str) -> str:
    """The same at every start, so that its owner finds again what it made."""
    return "key_" + hashlib.sha256(sha256.encode()).hexdigest()[:24]
