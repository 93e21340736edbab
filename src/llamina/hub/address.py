"""Models at addresses on the web: fetched into the folder of models, under the names that they have there."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from llamina.errors import DownloadError, ModelNotFound
from llamina.hub.assemble import checksum
from llamina.hub.catalogue import Progress
from llamina.hub.fetching import Wanted, fetch
from llamina.hub.origin import Origin, file_name
from llamina.hub.shards import shard_names
from llamina.hub.store import find, folder
from llamina.hub.transfer import Remote, look
from llamina.hub.web import Refused, Web, check_online, offline, shown


def pull(url: str, progress: Progress, *, force: bool = False, sha256: str | None = None) -> Path:
    """Fetch what is not here, or has changed there, all shards included, and return the path of the first file.

    It costs one request for each file that is here and has not changed. Raises `DownloadError`, and `ModelNotFound` if
    nothing is at the address.
    """
    name = file_name(url)
    if offline():
        try:
            return find(url)
        except ModelNotFound:
            check_online(name)
    names = shard_names(name)
    if sha256 and len(names) > 1:
        raise DownloadError(f"{name} is one of {len(names)} files: one SHA-256 cannot be that of all")
    web = Web()
    try:
        for shard in names:
            _pull_file(web, _sibling(url, shard), folder() / shard, progress, force, sha256)
    except Refused as error:
        raise (ModelNotFound(str(error)) if error.status in (404, 410) else error) from None
    finally:
        web.close()
    return folder() / names[0]


def _sibling(url: str, name: str) -> str:
    """The address of another file in the same folder."""
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}").geturl()


def _pull_file(web: Web, url: str, target: Path, progress: Progress, force: bool, sha256: str | None) -> None:
    there = target.exists()
    if there and not force and _serves(web, url, target, sha256):
        return
    wanted = Wanted(url, target.name, target, target.with_name(f".{target.name}.lock"), sha256=sha256)

    def note(partial: Path, remote: Remote) -> None:
        Origin.of(partial, url, remote.tag).write(target)

    fetch(web, wanted, progress, force=there, note=note)
    size = target.stat().st_size
    progress(target.name, size, size)


def _serves(web: Web, url: str, target: Path, sha256: str | None) -> bool:
    """Whether the file that is here is the one at the address. Raises DownloadError if it came from elsewhere."""
    origin = Origin.read(target)
    if origin is None or origin.url != shown(url):
        source = "elsewhere" if origin is None else origin.url
        raise DownloadError(f"{target} is here already, from {source}: delete it first, or replace it with --force")
    if not origin.is_of(target) or (sha256 is not None and checksum(target) != sha256):
        return False
    try:
        remote = look(web, url, origin.tag, tries=1)
    except DownloadError:  # no network, or a signed address whose time is over: what is here serves
        return True
    return remote.unchanged or (not remote.tag and remote.size == origin.size)
