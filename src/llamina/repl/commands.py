"""The commands of the terminal: `/name arguments`, each a function with its help."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from llamina.engine.request import OPTIONS, SAMPLING
from llamina.errors import RequestError

if TYPE_CHECKING:
    from llamina.repl.loop import Repl

SETTABLE = sorted((SAMPLING | OPTIONS) - {"triggers", "markers", "logits_processor"})
GRAMMARS = ("grammar", "json_schema", "regex", "lark")  # of a request, one at most


@dataclass(frozen=True, slots=True)
class Command:
    """`run(repl, arguments)`; `complete(repl)` lists what its argument may be, or it is a path."""

    name: str
    usage: str
    help: str
    run: Callable[["Repl", str], None]
    complete: Callable[["Repl"], Iterable[str]] | None = None
    takes_path: bool = False


COMMANDS: dict[str, Command] = {}
OTHER_NAMES = {"exit": "quit", "bye": "quit", "clear": "reset", "?": "help"}


def command(
    usage: str, complete: Callable[["Repl"], Iterable[str]] | None = None, takes_path: bool = False
) -> Callable[[Callable[["Repl", str], None]], Callable[["Repl", str], None]]:
    """Make a command of a function, named after it; its docstring is the help."""

    def add(function: Callable[["Repl", str], None]) -> Callable[["Repl", str], None]:
        name = function.__name__.strip("_")
        COMMANDS[name] = Command(name, usage, function.__doc__ or "", function, complete, takes_path)
        return function

    return add


def run(repl: "Repl", line: str) -> None:
    """Run `/name arguments`. Raises RequestError for a command that there is not, and what the command raises."""
    name, _, rest = line[1:].partition(" ")
    found = COMMANDS.get(name) or COMMANDS.get(
        {"exit": "quit", "bye": "quit", "clear": "reset", "?": "help"}.get(name, "")
    )
    if found is None:
        near = get_close_matches(name, COMMANDS, 1)
        raise RequestError(f"there is no /{name}: " + (f"did you mean /{near[0]}?" if near else "see /help"))
    found.run(repl, rest.strip())


@command("")
def help_(repl: "Repl", arguments: str) -> None:
    """List the commands and keys."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for found in COMMANDS.values():
        table.add_row(f"[bold]/{found.name}[/] [dim]{escape(found.usage)}[/]", escape(found.help))
    repl.console.print(table)
    repl.tell("Enter sends · Alt-Enter or a line that ends with \\ goes on · Ctrl-C stops an answer · Ctrl-D leaves")


@command("[TEXT]")
def system(repl: "Repl", arguments: str) -> None:
    """Set the system message; without a text, remove it."""
    repl.talk.system = arguments
    repl.tell("the system message is set" if arguments else "there is no system message")


@command(
    "NAME [VALUE]", complete=lambda repl: sorted(SAMPLING | (OPTIONS - {"triggers", "markers", "logits_processor"}))
)
def set_(repl: "Repl", arguments: str) -> None:
    """Set an option of answers, as `temperature 0.7`; without a value, take it back."""
    name, _, text = arguments.partition(" ")
    if not name:
        raise RequestError("give an option and a value, as /set temperature 0.7; /show settings lists what is set")
    repl.talk.set(name, _value(text) if text.strip() else None)
    repl.tell(f"{name} is {text.strip() or 'as it was at first'}")


@command("[settings|system|messages|model]", complete=lambda repl: ("settings", "system", "messages", "model"))
def show(repl: "Repl", arguments: str) -> None:
    """Show the settings, the system message, the conversation, or the model."""
    match arguments or "settings":
        case "settings":
            repl.tell("\n".join(f"{name} = {value}" for name, value in repl.talk.settings.items()) or "nothing is set")
        case "system":
            repl.tell(repl.talk.system or "there is no system message")
        case "messages":
            for message in repl.talk.messages:
                content = message["content"] if isinstance(message["content"], str) else json.dumps(message["content"])
                repl.console.print(f"[bold]{message['role']}[/]: {escape(content)}")
        case "model":
            repl.tell(repl.talk.partner.name)
        case other:
            raise RequestError(f"there is nothing called {other!r}: it must be settings, system, messages or model")


@command("FILE", takes_path=True)
def save(repl: "Repl", arguments: str) -> None:
    """Save the conversation, with its KV cache where the model is of this machine."""
    path = _path(arguments)
    repl.tell(f"saved {repl.talk.partner.save(path, repl.talk.messages)} in {path}")


@command("FILE", takes_path=True)
def load(repl: "Repl", arguments: str) -> None:
    """Go on with a saved conversation."""
    repl.talk.messages = repl.talk.partner.load(_path(arguments))
    repl.tell(f"{len(repl.talk.messages)} messages")
    for message in repl.talk.messages[-2:]:
        repl.console.print(f"[bold]{message['role']}[/]: {escape(str(message['content']))}")


@command("")
def reset(repl: "Repl", arguments: str) -> None:
    """Forget the conversation; settings and the system message stay."""
    repl.talk.reset()
    repl.tell("a new conversation")


@command("")
def regen(repl: "Repl", arguments: str) -> None:
    """Answer the last question again."""
    repl.talk.again()
    repl.answer()


@command("")
def edit(repl: "Repl", arguments: str) -> None:
    """Change the last question and ask it again."""
    repl.draft = repl.talk.undo()


@command("")
def undo(repl: "Repl", arguments: str) -> None:
    """Take the last question and its answer back."""
    repl.tell(f"taken back: {repl.talk.undo()}")


@command("FILE", takes_path=True)
def image(repl: "Repl", arguments: str) -> None:
    """Send a picture with the next message."""
    path = _path(arguments)
    repl.talk.attach_image(path)
    repl.tell(f"{path.name} goes with the next message")


@command("FILE", takes_path=True)
def file(repl: "Repl", arguments: str) -> None:
    """Send a text file with the next message."""
    path = _path(arguments)
    repl.tell(f"{path.name}, {repl.talk.attach_text(path)} characters, goes with the next message")


@command("[FILE|TEXT]", takes_path=True)
def grammar(repl: "Repl", arguments: str) -> None:
    """Make answers follow a GBNF grammar or a JSON schema, from a file or as it is; without one, free them."""
    for kind in GRAMMARS:
        repl.talk.settings.pop(kind, None)
    if not arguments:
        repl.tell("answers are free")
        return
    path = Path(arguments).expanduser()
    text = path.read_text(encoding="utf-8") if len(arguments) < 1000 and path.is_file() else arguments
    kind = "json_schema" if text.lstrip().startswith("{") else "grammar"
    repl.talk.set(kind, json.loads(text) if kind == "json_schema" else text)
    repl.tell(f"answers follow the {'JSON schema' if kind == 'json_schema' else 'grammar'}")


@command("[FILE.py]", takes_path=True)
def tools(repl: "Repl", arguments: str) -> None:
    """Let the model call the functions of a Python file, each time after your yes; without a file, none."""
    if not arguments:
        repl.talk.functions = None
        repl.tell("the model has no tools")
        return
    repl.tell("the model may call " + ", ".join(repl.talk.load_tools(_path(arguments))))


def _models(repl: "Repl") -> list[str]:
    return repl.talk.partner.models()


@command("[NAME]", complete=_models)
def model(repl: "Repl", arguments: str) -> None:
    """Go on with another model; without a name, list them."""
    if arguments:
        repl.talk.partner.use(arguments)
        repl.tell(f"{repl.talk.partner.name} answers now")
    else:
        now = repl.talk.partner.name
        repl.tell("\n".join(("* " if name == now else "  ") + name for name in repl.talk.partner.models()))


@command("")
def stats(repl: "Repl", arguments: str) -> None:
    """Show the model, its memory, and the figures of the last answer."""
    rows = repl.talk.partner.stats()
    if repl.figures is not None:
        rows["last answer"] = repl.figures.line(repl.talk.partner.context)
        rows["from the prefix cache"] = f"{repl.figures.cached_tokens} of {repl.figures.prompt_tokens} tokens"
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(f"[dim]{name}[/]", escape(value))
    repl.console.print(table)


@command("")
def quit_(repl: "Repl", arguments: str) -> None:
    """Leave."""
    repl.over = True


def _value(text: str) -> Any:
    """A number, a truth or JSON as what it is; anything else is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _path(arguments: str) -> Path:
    if not arguments:
        raise RequestError("give a file")
    return Path(arguments).expanduser()
