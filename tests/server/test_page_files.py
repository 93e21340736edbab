"""The page's files over HTTP: types, caching, the Content-Security-Policy, and nothing else of the disk."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import Live

import llamina.server.page

STATIC = Path(llamina.server.page.__file__).parent / "static"
OURS = sorted(path for path in STATIC.rglob("*") if path.is_file() and path.parent.name != "vendor")


@pytest.fixture(scope="module")
def client(stage: Live) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=stage.url) as client:
        yield client


def test_page(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy and "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
    assert "nosniff" in answer.headers["x-content-type-options"]
    assert client.head("/").status_code == 200
    assert client.post("/").status_code == 405


def test_every_file_that_the_page_names_is_served(client: httpx.Client) -> None:
    names = {"index.html"}
    for path in OURS:
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r'(?:href|src)="static/([^"#]+)', text))
        found = re.findall(r'from "(\.[^"]+)"', text) if path.suffix == ".js" else []
        names |= {(path.parent / name).resolve().relative_to(STATIC).as_posix() for name in found}
    assert len(names) > 40
    for name in names:
        answer = client.get(f"/static/{name}")
        assert answer.status_code == 200, name
        kind = {"js": "text/javascript", "mjs": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
        assert answer.headers["content-type"].startswith(kind.get(name.rpartition(".")[2], "text/html"))
        assert answer.content == (STATIC / name).read_bytes()


def test_etag(client: httpx.Client) -> None:
    first = client.get("/static/js/main.js")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get("/static/js/main.js", headers={"If-None-Match": given})
        assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == tag
    assert client.get("/static/js/main.js", headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "..%2ffiles.py",
        "%2e%2e/files.py",
        "..%5cfiles.py",
        "js/..%2f..%2ffiles.py",
        "%2fetc%2fpasswd",
        "js",
        "js/",
        "",
        "js/none.js",
        "js/main.js%00.css",
        "//etc/passwd",
    ],
)
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/static/{path}")
    assert answer.status_code == 404 and "error" in answer.json()


def test_vendored_files_are_those_of_the_table() -> None:
    table = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` .* `([0-9a-f]{64})` \|$", table, re.MULTILINE))
    files = {path.name for path in (STATIC / "vendor").iterdir()} - {"README.md"}
    assert files == set(rows) | {name for name in files if name.endswith(".LICENSE.txt")}
    for name, digest in rows.items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name
    for name in re.findall(r"\(`([^`]+\.LICENSE\.txt)`\)", table):
        assert name in files


def test_size() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < 1_000_000
    for path in OURS:
        if path.suffix in (".js", ".css"):
            assert path.read_text(encoding="utf-8").count("\n") <= 400, f"{path.name} is longer than one idea"


def test_no_code_parses_html() -> None:
    """Text goes into the page as text; HTML goes through the sanitiser only."""
    for path in OURS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )
        assert "style=" not in text and not re.search(r'\son\w+="', text), path
