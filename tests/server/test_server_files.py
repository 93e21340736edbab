"""Files through OpenAI's official client, and forms that no client would send."""

import os
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from live_server import Live, serving, wait_for
from openai_objects import official_client, strict

from llamina.server.config import Config, Limits
from llamina.server.files import LEFTOVER_AFTER, sweep

DAY = 86400


@pytest.fixture
def client(live: Live) -> openai.OpenAI:
    return official_client(live)


def folder(live: Live) -> Path:
    path: Path = live.server.store.contents.folder
    return path


def test_a_file_comes_back(client: openai.OpenAI, live: Live) -> None:
    content = os.urandom(3 << 20) + b"\r\n--\r\n"
    made = strict(client.files.create(file=("naïve \U0001f600.bin", content), purpose="user_data"))
    assert (made.filename, made.bytes, made.purpose) == ("naïve \U0001f600.bin", len(content), "user_data")
    assert made.expires_at is None and abs(made.created_at - time.time()) < 60
    assert strict(client.files.retrieve(made.id)) == made
    assert client.files.content(made.id).read() == content
    assert client.files.wait_for_processing(made.id).status == "processed"
    gone = strict(client.files.delete(made.id))
    assert gone.deleted and gone.id == made.id
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(made.id)
    assert not (folder(live) / made.id).exists()


def test_files_expire(client: openai.OpenAI, live: Live) -> None:
    expiry: Any = {"anchor": "created_at", "seconds": 3600}
    made = strict(client.files.create(file=("a", b"a"), purpose="batch", expires_after=expiry))
    assert made.expires_at == made.created_at + 3600
    usual = strict(client.files.create(file=("a", b"a"), purpose="batch"))
    assert usual.expires_at == usual.created_at + 30 * DAY
    kept = live.call(live.server.store.get("file", made.id))
    live.call(live.server.store.change("file", made.id, body=kept.body | {"expires_at": int(time.time())}))
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert made.id not in [file.id for file in client.files.list()]
    live.call(sweep(live.server))
    assert live.call(live.server.store.get("file", made.id)) is None
    assert not (folder(live) / made.id).exists() and (folder(live) / usual.id).exists()


def test_lists_have_pages(client: openai.OpenAI) -> None:
    made = [client.files.create(file=(f"{i}", b"x"), purpose="vision").id for i in range(5)]
    assert [file.id for file in client.files.list(purpose="vision")] == made[::-1]
    assert [strict(file).id for file in client.files.list(purpose="vision", order="asc", limit=2)] == made
    page = client.files.list(purpose="vision", limit=2, after=made[4])
    assert [file.id for file in page.data] == [made[3], made[2]] and page.has_more
    for params in ({"limit": 0}, {"order": "up"}, {"after": "file-nobody"}, {"purpse": "batch"}):
        with pytest.raises(openai.APIStatusError) as raised:
            client.files.list(extra_query=params)
        assert raised.value.status_code == (404 if "after" in params else 400)
        assert raised.value.param == next(iter(params))


def test_a_name_is_never_a_path(client: openai.OpenAI, live: Live) -> None:
    for name in ("../../../escaped", "/etc/passwd", "C:\\escaped", "..", "a\x00b"):
        made = client.files.create(file=(name, b"x"), purpose="assistants")
        assert (folder(live) / made.id).read_bytes() == b"x"
        answer = httpx.get(f"{live.url}/v1/files/{made.id}/content")
        assert answer.content == b"x" and "attachment" in answer.headers["content-disposition"]
    assert not list(folder(live).parent.glob("**/escaped"))
    for id in ("..%2f..%2fllamina.db", "%2e%2e", "llamina.db"):
        assert httpx.get(f"{live.url}/v1/files/{id}/content").status_code == 404


FORM = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
FILE = PART % (b"file", b'; filename="a"', b"content")
PURPOSE = PART % (b"purpose", b"", b"batch")
END = b"--x--\r\n"
HEAD = (
    b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + FORM.encode() + b"\r\nContent-Length: %d\r\n\r\n"
)


def connected(live: Live) -> socket.socket:
    host, port = live.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


@pytest.mark.parametrize(
    ("body", "kind", "status", "param"),
    [
        (b'{"purpose": "batch"}', "application/json", 400, None),
        (b"", "multipart/form-data", 400, None),
        (b"nonsense", FORM, 400, None),
        (FILE + PURPOSE, FORM, 400, None),  # not whole
        (FILE + END, FORM, 400, "purpose"),
        (PURPOSE + END, FORM, 400, "file"),
        (FILE + PART % (b"purpose", b"", b"spam") + END, FORM, 400, "purpose"),
        (FILE + FILE + PURPOSE + END, FORM, 400, "file"),
        (PURPOSE + PURPOSE + FILE + END, FORM, 400, "purpose"),
        (PART % (b"file", b"", b"x") + PURPOSE + END, FORM, 400, "file"),
        (PART % (b"file", b'; filename="' + b"a" * 256 + b'"', b"x") + PURPOSE + END, FORM, 400, "file"),
        (FILE + PURPOSE + PART % (b"colour", b"", b"red") + END, FORM, 400, "colour"),
        (FILE + PURPOSE + PART % (b"expires_after[seconds]", b"", b"7200") + END, FORM, 400, "expires_after.anchor"),
        (FILE + PURPOSE + PART % (b"purpos\xff", b"", b"x") + END, FORM, 400, None),
        (FILE + PART % (b"purpose", b"", b"x" * 70_000) + END, FORM, 413, "purpose"),
        (b"".join(PART % (b"%d" % i, b"", b"") for i in range(20)) + END, FORM, 400, None),
    ],
)
def test_forms_that_are_refused(live: Live, body: bytes, kind: str, status: int, param: str | None) -> None:
    before = set(os.listdir(folder(live))) if folder(live).exists() else set()
    answer = httpx.post(f"{live.url}/v1/files", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert set(os.listdir(folder(live))) == before


def test_a_form_that_comes_in_small_pieces(live: Live) -> None:
    """Every boundary and header is cut somewhere."""
    content = b"\r\n--y\r\n-" * 9  # almost a boundary
    body = PURPOSE + PART % (b"file", b'; filename="a"', content) + END
    for size in (1, 3, 7):
        pieces = (body[at : at + size] for at in range(0, len(body), size))
        answer = httpx.post(f"{live.url}/v1/files", content=pieces, headers={"Content-Type": FORM})
        assert answer.status_code == 200, answer.text
        found = httpx.get(f"{live.url}/v1/files/{answer.json()['id']}/content")
        assert found.content == content


def test_a_file_has_a_limit_of_its_own(tmp_path: Path) -> None:
    limits = Limits(body_bytes=1000, file_bytes=100_000)
    with serving({}, Config(data=str(tmp_path), limits=limits)) as live:
        client = official_client(live)
        assert client.files.create(file=("a", b"x" * 100_000), purpose="batch").bytes == 100_000
        with pytest.raises(openai.APIStatusError) as raised:
            client.files.create(file=("a", b"x" * 100_001), purpose="batch")
        assert raised.value.status_code == 413
        with connected(live) as connection:
            connection.sendall(HEAD % 2_000_000 + FILE)
            assert b" 413 " in connection.recv(100), "the length alone says enough"
        assert len(os.listdir(tmp_path / "files")) == 1


def test_a_client_that_leaves_leaves_nothing(live: Live) -> None:
    before = set(os.listdir(folder(live)))
    with connected(live) as connection:
        connection.sendall(HEAD % 9_999_999 + FILE[:-2] + b"x" * (2 << 20))
        assert wait_for(lambda: any(name.endswith(".part") for name in os.listdir(folder(live))))
    assert wait_for(lambda: set(os.listdir(folder(live))) == before)


def test_what_a_crash_leaves_is_swept(live: Live) -> None:
    old, new = folder(live) / "file-old.part", folder(live) / "file-new"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, time.time() - LEFTOVER_AFTER - 1))
    live.call(sweep(live.server))
    assert not old.exists() and new.exists(), "what is new may be an upload under way"
    new.unlink()
