"""JSON Web Tokens: which are taken, which are not, and what they allow."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from protected_server import CHAT, Protected, protected

from llamina.errors import RequestError
from llamina.server.protection.settings import Jwt
from llamina.server.protection.tokens import Tokens

SECRET = "a secret of at least thirty-two bytes"
PRIVATE = rsa.generate_private_key(65537, 2048)
PUBLIC = (
    PRIVATE.public_key()
    .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    .decode()
)


def claims(**more: Any) -> dict[str, Any]:
    found = {"sub": "ann", "exp": time.time() + 300, "aud": "llamina", "iss": "us", "scope": "chat:write other", **more}
    return {name: value for name, value in found.items() if value is not None}


def hs256(**more: Any) -> str:
    return jwt.encode(claims(**more), SECRET, "HS256")


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims()).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    with protected(jwt=Jwt(SECRET, PUBLIC, "llamina", "us")) as found:
        yield found


def status(server: Protected, token: str, path: str = "/v1/chat/completions") -> int:
    return server.ask(path, CHAT, token).status_code


def test_both_algorithms(server: Protected) -> None:
    assert status(server, hs256()) == 200
    assert status(server, jwt.encode(claims(), PRIVATE, "RS256")) == 200


def test_tokens_that_are_refused(server: Protected) -> None:
    now = time.time()
    other = rsa.generate_private_key(65537, 2048)
    refused = {
        "expired": hs256(exp=now - 61),
        "not yet": hs256(nbf=now + 70),
        "audience": hs256(aud="others"),
        "no audience": hs256(aud=None),
        "issuer": hs256(iss="them"),
        "no issuer": hs256(iss=None),
        "no end": hs256(exp=None),
        "no subject": hs256(sub=None),
        "secret": jwt.encode(claims(), SECRET + "!", "HS256"),
        "private key": jwt.encode(claims(), other, "RS256"),
        "algorithm": jwt.encode(claims(), SECRET.ljust(64, "."), "HS512"),
        "none": unsigned({"alg": "none"}),
        "None": unsigned({"alg": "None"}),
        "no alg": unsigned({"typ": "JWT"}),
        "alg that is no text": unsigned({"alg": ["HS256"]}),
        "no JSON": "a.b.c",
    }
    assert {name: status(server, token) for name, token in refused.items()} == dict.fromkeys(refused, 401)


def test_a_public_key_is_no_secret(server: Protected) -> None:
    """Key confusion: an HS256 token that is signed with the text of the RSA key."""
    for pem in (PUBLIC, PUBLIC.strip()):
        head = unsigned({"alg": "HS256", "typ": "JWT"}).rpartition(".")[0]
        signature = hmac.new(pem.encode(), head.encode(), hashlib.sha256).digest()
        assert status(server, head + "." + base64.urlsafe_b64encode(signature).rstrip(b"=").decode()) == 401


def test_clocks_may_differ_by_a_minute(server: Protected) -> None:
    now = time.time()
    assert status(server, hs256(exp=now - 50)) == 200
    assert status(server, hs256(nbf=now + 50)) == 200


@pytest.mark.parametrize(
    "given", [{"scope": "embed:read"}, {"scope": None}, {"scope": 5}, {"scopes": [], "scope": None}]
)
def test_scopes_decide(given: Any, server: Protected) -> None:
    assert status(server, hs256(**given)) == 403


def test_scopes_as_a_list(server: Protected) -> None:
    assert status(server, hs256(scope=None, scopes=["chat:write"])) == 200
    assert status(server, hs256(scope=None, scp=["chat:write"])) == 200


def test_a_token_of_an_administrator(server: Protected) -> None:
    assert server.manage("/admin/models", key=hs256(scope="admin:read")).status_code == 200
    assert server.manage("/admin/keys", {"name": "x"}, hs256(scope="admin:read")).status_code == 403
    assert server.manage("/admin/models").status_code == 401


def test_owners_are_told_apart_by_issuer_and_subject() -> None:
    tokens = Tokens(Jwt(SECRET))
    owners = {tokens.read(hs256(aud=None, **who))[0] for who in ({}, {"sub": "bob"}, {"iss": "them"}, {"iss": None})}
    assert len(owners) == 4 and all(len(owner) <= 64 for owner in owners)


@pytest.mark.parametrize(
    "settings",
    [
        Jwt(),
        Jwt("short"),
        Jwt(public_key="/nowhere.pem"),
        Jwt(public_key="-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----"),
        Jwt(
            public_key=PRIVATE.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ).decode()
        ),
    ],
)
def test_settings_that_do_not_protect(settings: Jwt) -> None:
    with pytest.raises(RequestError):
        Tokens(settings)
