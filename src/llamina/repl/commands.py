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
from llamina.repl.partner import Message
from llamina.repl.visible import visible

if TYPE_CHECKING:
    from llamina.repl.desk import Desk

SETTABLE = sorted((SAMPLING | OPTIONS) - {"triggers", "markers", "logits_processor", "reasoning_limit"})
GRAMMARS = ("grammar", "json_schema", "regex", "lark")  # of a request, one at most


@dataclass(frozen=True, slots=True)
class Command:
    """`run(desk, arguments)`; `complete(desk)` lists what its argument may be, or it is a path."""

    name: str
    usage: str
    help: str
    run: Callable[["Desk", str], None]
    complete: Callable[["Desk"], Iterable[str]] | None = None
    takes_path: bool = False


COMMANDS: dict[str, Command] = {}
OTHER_NAMES = {"exit": "quit", "bye": "quit", "clear": "reset", "?": "help"}


def command(
    usage: str, complete: Callable[["Desk"], Iterable[str]] | None = None, takes_path: bool = False
) -> Callable[[Callable[["Desk", str], None]], Callable[["Desk", str], None]]:
    """Make a command of a function, named after it; its docstring is the help."""

    def add(function: Callable[["Desk", str], None]) -> Callable[["Desk", str], None]:
        name = function.__name__.strip("_")
        COMMANDS[name] = Command(name, usage, function.__doc__ or "", function, complete, takes_path)
        return function

    return add


def run(desk: "Desk", line: str) -> None:
    """Run `/name arguments`. Raises RequestError for a command that there is not, and what the command raises."""
    name, _, rest = line[1:].partition(" ")
    found = COMMANDS.get(name) or COMMANDS.get(OTHER_NAMES.get(name, ""))
    if found is None:
        near = get_close_matches(name, COMMANDS, 1)
        raise RequestError(f"there is no /{name}: " + (f"did you mean /{near[0]}?" if near else "see /help"))
    found.run(desk, rest.strip())


@command("")
def help_(desk: "Desk", arguments: str) -> None:
    """List the commands and keys."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for found in COMMANDS.values():
        table.add_row(f"[bold]/{found.name}[/] [dim]{escape(found.usage)}[/]", escape(found.help))
    desk.show(table)
    desk.tell(desk.keys)


@command("[TEXT]")
def system(desk: "Desk", arguments: str) -> None:
    """Set the system message; without a text, remove it."""
    desk.talk.system = arguments
    desk.tell("the system message is set" if arguments else "there is no system message")


@command("NAME [VALUE]", complete=lambda desk: SETTABLE)
def set_(desk: "Desk", arguments: str) -> None:
    """Set an option of answers, as `temperature 0.7`; without a value, take it back."""
    name, _, text = arguments.partition(" ")
    if not name:
        raise RequestError("give an option and a value, as /set temperature 0.7; /show settings lists what is set")
    desk.talk.set(name, _value(text) if text.strip() else None)
    desk.tell(f"{name} is {text.strip() or 'as it was at first'}")


@command("[settings|system|messages|model]", complete=lambda desk: ("settings", "system", "messages", "model"))
def show(desk: "Desk", arguments: str) -> None:
    """Show the settings, the system message, the conversation, or the model."""
    match arguments or "settings":
        case "settings":
            desk.tell("\n".join(f"{name} = {value}" for name, value in desk.talk.settings.items()) or "nothing is set")
        case "system":
            desk.tell(desk.talk.system or "there is no system message")
        case "messages":
            for message in desk.talk.messages:
                desk.show(said(message))
        case "model":
            desk.tell(desk.talk.partner.name)
        case other:
            raise RequestError(f"there is nothing called {other!r}: it must be settings, system, messages or model")


@command("FILE", takes_path=True)
def save(desk: "Desk", arguments: str) -> None:
    """Save the conversation, with its KV cache where the model is of this machine."""
    path = _path(arguments)
    desk.tell(f"saved {desk.talk.partner.save(path, desk.talk.messages)} in {path}")


@command("FILE", takes_path=True)
def load(desk: "Desk", arguments: str) -> None:
    """Go on with a saved conversation."""
    desk.talk.messages = desk.talk.partner.load(_path(arguments))
    desk.tell(f"{len(desk.talk.messages)} messages")
    desk.recall()


@command("")
def reset(desk: "Desk", arguments: str) -> None:
    """Forget the conversation; settings and the system message stay."""
    desk.talk.reset()
    desk.tell("a new conversation")


@command("")
def regen(desk: "Desk", arguments: str) -> None:
    """Answer the last question again."""
    desk.talk.again()
    desk.answer()


@command("")
def edit(desk: "Desk", arguments: str) -> None:
    """Change the last question and ask it again."""
    desk.draft = desk.talk.undo()


@command("")
def undo(desk: "Desk", arguments: str) -> None:
    """Take the last question and its answer back."""
    desk.tell(f"taken back: {desk.talk.undo()}")


@command("FILE|URL", takes_path=True)
def image(desk: "Desk", arguments: str) -> None:
    """Send a picture with the next message."""
    name = _path(arguments).name
    desk.talk.attach_image(arguments)
    desk.tell(f"{name} goes with the next message")


@command("FILE", takes_path=True)
def audio(desk: "Desk", arguments: str) -> None:
    """Send a sound with the next message."""
    path = _path(arguments)
    desk.talk.attach_sound(path)
    desk.tell(f"{path.name} goes with the next message")


@command("FILE", takes_path=True)
def file(desk: "Desk", arguments: str) -> None:
    """Send a text file with the next message."""
    path = _path(arguments)
    desk.tell(f"{path.name}, {desk.talk.attach_text(path)} characters, goes with the next message")


@command("[FILE|TEXT]", takes_path=True)
def grammar(desk: "Desk", arguments: str) -> None:
    """Make answers follow a GBNF grammar or a JSON schema, from a file or as it is; without one, free them."""
    for kind in GRAMMARS:
        desk.talk.settings.pop(kind, None)
    if not arguments:
        desk.tell("answers are free")
        return
    path = Path(arguments).expanduser()
    text = path.read_text(encoding="utf-8") if len(arguments) < 1000 and path.is_file() else arguments
    kind = "json_schema" if text.lstrip().startswith("{") else "grammar"
    desk.talk.set(kind, json.loads(text) if kind == "json_schema" else text)
    desk.tell(f"answers follow the {'JSON schema' if kind == 'json_schema' else 'grammar'}")


@command("[FILE.py]", takes_path=True)
def tools(desk: "Desk", arguments: str) -> None:
    """Let the model call the functions of a Python file, each time after your yes; without a file, none."""
    if not arguments:
        desk.talk.functions = None
        desk.tell("the model has no tools")
        return
    desk.tell("the model may call " + ", ".join(desk.talk.load_tools(_path(arguments))))


def _models(desk: "Desk") -> list[str]:
    return desk.talk.partner.models()


@command("[NAME]", complete=_models)
def model(desk: "Desk", arguments: str) -> None:
    """Go on with another model; without a name, list them."""
    if arguments:
        desk.talk.partner.use(arguments)
        desk.tell(f"{desk.talk.partner.name} answers now")
    else:
        now = desk.talk.partner.name
        desk.tell("\n".join(("* " if name == now else "  ") + name for name in desk.talk.partner.models()))


@command("")
def stats(desk: "Desk", arguments: str) -> None:
    """Show the model, its memory, and the figures of the last answer."""
    rows = desk.talk.partner.stats()
    if desk.figures is not None:
        rows["last answer"] = desk.figures.line(desk.talk.partner.context)
        rows["from the prefix cache"] = f"{desk.figures.cached_tokens} of {desk.figures.prompt_tokens} tokens"
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(f"[dim]{name}[/]", escape(value))
    desk.show(table)


@command("")
def quit_(desk: "Desk", arguments: str) -> None:
    """Leave."""
    desk.over = True


def said(message: Message) -> str:
    """Who said what, as markup of rich."""
    content = message["content"] if isinstance(message["content"], str) else json.dumps(message["content"])
    return f"[bold]{message['role']}[/]: {escape(visible(content))}"


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
