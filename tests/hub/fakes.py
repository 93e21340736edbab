"""Stand-ins for pip, npm and Hugging Face: small, local, and able to break."""

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlparse

from llamina.hub.catalogue import Entry, HubFile, Packages

COMMIT = "0" * 40


def make_wheels(folder: Path, parts: list[bytes], name: str = "tiny") -> Packages:
    """As many wheels as there are parts, lying in `folder`."""
    for number, content in enumerate(parts):
        with zipfile.ZipFile(folder / f"{name}_part{number}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}_part{number}/data/{name}.part{number:02}", content)
    member = f"{name}_part{{n}}/data/{name}.part{{n:02}}"
    return Packages("pypi", f"{name}-part{{n}}", "1.0", member, 0, len(parts) - 1)


def make_tarballs(folder: Path, parts: list[bytes], name: str = "tiny") -> Packages:
    """As many npm packages as there are parts, lying in `folder`."""
    for number, content in enumerate(parts, 1):
        with tarfile.open(folder / f"{name}-npm{number}-1.0.tgz", "w:gz") as archive:
            header = tarfile.TarInfo("package/model.part")
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return Packages("npm", f"{name}-npm{{n}}", "1.0", "package/model.part", 1, len(parts))


def make_entry(whole: bytes, *sources: HubFile | Packages, name: str = "tiny") -> Entry:
    """A model of the catalogue whose file has these bytes."""
    digest = hashlib.sha256(whole).hexdigest()
    return Entry(name, "A tiny model", f"{name}.gguf", "Apache-2.0", "instruct", len(whole), digest, sources)


FAKE_PIP = """
import pathlib, shutil, sys, time
arguments = sys.argv[1:]
wheels = pathlib.Path(__file__).parent / "wheels"
with open(pathlib.Path(__file__).parent / "calls.txt", "a") as calls:
    calls.write(" ".join(arguments) + chr(10))
requirement = pathlib.Path(arguments[arguments.index("-r") + 1]).read_text()
name = requirement.split("==")[0].replace("-", "_")
broken = pathlib.Path(__file__).parent / "broken"
if broken.exists() and broken.read_text() in requirement:
    sys.exit("ERROR: connection broken")
target = pathlib.Path(arguments[arguments.index("--dest") + 1])
target.mkdir(parents=True)
for wheel in wheels.glob(name + "-*.whl"):
    shutil.copy(wheel, target)
time.sleep(0.15)  # so that progress is seen
"""


FAKE_NPM = """#!{python}
import pathlib, shutil, sys
arguments = sys.argv[1:]
name = arguments[-1].replace("@", "-")
with open(pathlib.Path(__file__).parent / "calls.txt", "a") as calls:
    calls.write(" ".join(arguments) + chr(10))
tarball = pathlib.Path(__file__).parent / (name + ".tgz")
if not tarball.exists():
    sys.exit("npm error code E404" + chr(10) + "npm error 404 Not Found: " + name)
shutil.copy(tarball, arguments[arguments.index("--pack-destination") + 1])
"""


@contextmanager
def serving(files: Mapping[str, bytes], repo: str = "user/repo") -> Iterator[str]:
    """A Hugging Face hub with one repository; yields its address."""

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path = urlparse(self.path).path
            name = path.removeprefix(f"/{repo}/resolve/main/").removeprefix(f"/{repo}/resolve/{COMMIT}/")
            if path.startswith(f"/api/models/{repo}"):
                siblings = [{"rfilename": name} for name in files]
                self._send({"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}, body)
            elif name in files:
                self._send(files[name], body)
            else:
                code = "EntryNotFound" if path.startswith(f"/{repo}/") else "RepoNotFound"
                self._send({"error": "not found"}, body, 404, {"X-Error-Code": code})

        def _send(
            self, content: object, body: bool, status: int = 200, headers: Mapping[str, str] | None = None
        ) -> None:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            first, last = self._range(len(data))
            self.send_response(206 if self.headers.get("Range") and status == 200 else status)
            kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
            known = {
                "Content-Length": str(last - first),
                "Content-Type": kind,
                "Content-Range": f"bytes {first}-{last - 1}/{len(data)}",
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            }
            for name, value in {**known, **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(data[first:last])

        def _range(self, size: int) -> tuple[int, int]:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            return int(first), min(int(last) + 1, size) if last else size

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
