"""Host and Origin, CORS, security headers, TLS, slow connections."""

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from live_server import wait_for
from protected_server import CHAT, Protected, protected
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from llamina.errors import RequestError
from llamina.server.app import build_app
from llamina.server.config import Config
from llamina.server.listen import check_tls, listen, options_of
from llamina.server.protection.deadline import Deadline
from llamina.server.protection.hosts import default_hosts, name_of
from llamina.server.protection.slow_headers import hurried


@pytest.fixture(scope="module")
def server() -> Iterator[Protected]:
    with protected() as found:
        yield found


@pytest.fixture(scope="module")
def shared() -> Iterator[Protected]:
    with protected(cors_origins=["https://chat.example"], api_keys=["k"], hosts=["127.0.0.1", ".example"]) as found:
        yield found


# ---- Host ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "LOCALHOST", "[::1]:5", "a.localhost"])
def test_local_names(host: str, server: Protected) -> None:
    assert server.ask("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil", "10.0.0.1", "[::2]", "x"])
def test_dns_rebinding_other_names_are_refused(host: str, server: Protected) -> None:
    """A page's own name that points to this machine."""
    answer = server.ask("/v1/models", headers={"Host": host})
    assert answer.status_code == 421 and answer.json()["error"]["code"] == "unknown_host"
    assert server.manage("/admin/models", headers={"Host": host}).status_code == 421
    assert server.ask("/health", headers={"Host": host}).status_code == 200


def test_listed_names(shared: Protected) -> None:
    assert shared.ask("/v1/models", key="k", headers={"Host": "llm.example"}).status_code == 200
    assert shared.ask("/v1/models", key="k", headers={"Host": "localhost"}).status_code == 421


def test_two_hosts_are_none() -> None:
    assert name_of("Example.COM:80") == "example.com" and name_of("[::1]:80") == "[::1]"


@pytest.mark.parametrize(
    ("address", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_names_that_are_taken_by_default(address: str, local: bool) -> None:
    assert ("*" not in default_hosts(address)) == local


# ---- Origin and CORS -------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:9999", "file://"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS", "GET"])
def test_cors_pages_of_others_are_refused(origin: str, method: str, server: Protected) -> None:
    """Also without reading the answer: a page could have models pulled by a plain POST."""
    answer = server.ask("/api/tags", CHAT, method=method, headers={"Origin": origin})
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    assert server.manage("/admin/keys", {"name": "x"}, headers={"Origin": origin}).status_code == 403


def test_a_page_of_the_server_itself(server: Protected) -> None:
    assert server.ask("/v1/models", headers={"Origin": server.url}).status_code == 200


def test_cors_for_origins_that_are_listed(shared: Protected) -> None:
    asked = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    before = shared.ask("/v1/chat/completions", method="OPTIONS", headers=asked)
    assert before.status_code == 200 and before.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-credentials" not in before.headers
    answer = shared.ask("/v1/models", key="k", headers={"Origin": "https://chat.example"})
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://chat.example"
    refused = shared.ask("/v1/models", headers={"Origin": "https://chat.example"})
    assert refused.status_code == 401 and "access-control-allow-origin" in refused.headers
    other = shared.ask("/v1/models", key="k", headers={"Origin": "https://chat.example.evil"})
    assert other.status_code == 403


def test_cors_any_origin_with_credentials_is_refused_at_start() -> None:
    with pytest.raises(RequestError, match="list origins"):
        build_app(Config(cors_origins=["*"], cors_credentials=True))
    build_app(Config(cors_origins=["*"]))


# ---- headers ---------------------------------------------------------------------------------------------


def test_security_headers(server: Protected) -> None:
    for answer in (server.ask("/health"), server.ask("/nothing"), server.ask("/v1/chat/completions", CHAT)):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["x-frame-options"] == "DENY"
        assert "strict-transport-security" not in answer.headers


# ---- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


def test_tls(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    config = Config(certfile=str(cert), keyfile=str(key), data=str(tmp_path))
    check_tls(config)

    async def scene() -> httpx.Response:
        listening = listen("127.0.0.1", 0)
        server = uvicorn.Server(options_of(build_app(config), config))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/health"
        async with httpx.AsyncClient(verify=ssl.create_default_context(cafile=cert)) as client:
            answer = await client.get(url)
        server.should_exit = True
        await running
        return answer

    answer = asyncio.run(asyncio.wait_for(scene(), 30))
    assert answer.status_code == 200 and answer.headers["strict-transport-security"] and "server" not in answer.headers


def test_tls_files_that_are_not_there(certificate: tuple[Path, Path]) -> None:
    with pytest.raises(RequestError, match="both"):
        check_tls(Config(certfile=str(certificate[0])))
    with pytest.raises(RequestError, match="not a file"):
        check_tls(Config(certfile=str(certificate[0]), keyfile="/nowhere.pem"))


# ---- slow connections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /"])
def test_headers_that_do_not_come_end_the_connection(sent: bytes) -> None:
    async def scene() -> None:
        options = uvicorn.Config(
            Starlette(), http=hurried(H11Protocol, 0.2), log_level="critical", timeout_keep_alive=1
        )
        listening = listen("127.0.0.1", 0)
        server = uvicorn.Server(options)
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(sent)
        await asyncio.wait_for(reader.read(), 3)  # until the server closes it
        writer.close()
        server.should_exit = True
        await running

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_a_stream_that_nobody_takes_is_ended() -> None:
    """After the time for an answer, and a little more, the place of a client that does not read is free again."""
    ended: list[str] = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"data: x\n\n" * 5000, "more_body": True})
        finally:
            ended.append("ended")

    async def scene() -> None:
        listening = listen("127.0.0.1", 0)
        app = Deadline(endless, 0.3, grace=0.2)
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        with socket.create_connection(listening.getsockname()) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.to_thread(wait_for, lambda: bool(ended), 10)
        server.should_exit = True
        await running

    asyncio.run(asyncio.wait_for(scene(), 30))
    assert ended == ["ended"]
