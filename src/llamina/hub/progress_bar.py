"""A progress bar for whoever fetches a model without giving one."""

from collections.abc import Iterator
from contextlib import contextmanager

from llamina.hub.catalogue import Progress


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A function that moves a bar on stderr; None where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", visible=False)

        def move(name: str, done: int, total: int) -> None:
            bars.update(task, description=name, completed=done, total=total or None, visible=True)

        yield move
