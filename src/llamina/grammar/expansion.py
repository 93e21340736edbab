"""How large a Lark grammar's terminals are with every reference replaced: each may double the one before it."""

import re

from llamina.errors import InvalidGrammar

MAX_SIZE = 1_000_000  # characters of one terminal, replaced; that many compile in about 0.1 seconds
DEFINITION = re.compile(r"^[ \t]*[?!]*(_?[A-Za-z]\w*)(?:\.-?\d+)?(?:\[[^\]\n]*\])?[ \t]*:", re.MULTILINE)
TEXT = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/')
TERMINAL = re.compile(r"\b_?[A-Z][A-Z0-9_]*\b")


def check_size(lark: str, kind: str) -> None:
    """Raise InvalidGrammar if a terminal is too large, before anybody tries to build it."""
    terminals = _terminals(lark)
    sizes: dict[str, int] = {}
    for first in terminals:
        stack = [first]
        while stack:
            name = stack[-1]
            size, inner = terminals[name]
            waiting = [other for other in inner if other in terminals and other not in sizes and other not in stack]
            if name not in sizes and waiting:
                stack += waiting[:1]
                continue
            sizes[name] = size + sum(
                sizes.get(other, 0) for other in inner
            )  # one that refers to itself is refused later
            if sizes[name] > MAX_SIZE:
                message = f"{kind} has a rule of more than {MAX_SIZE} characters with its references replaced"
                raise InvalidGrammar(f"{message}: use shorter rules, or repetitions", kind)
            stack.pop()


def _terminals(lark: str) -> dict[str, tuple[int, list[str]]]:
    """Name → (characters, the terminals that it refers to) of every definition in capitals."""
    found: dict[str, tuple[int, list[str]]] = {}
    definitions = list(DEFINITION.finditer(lark))
    for at, match in enumerate(definitions):
        if TERMINAL.fullmatch(match[1]):
            end = definitions[at + 1].start() if at + 1 < len(definitions) else len(lark)
            body = lark[match.end() : end]
            found[match[1]] = (len(body), TERMINAL.findall(TEXT.sub(" ", body)))
    return found
