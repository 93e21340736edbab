"""Which of a kernel's parameters it stores through, read off its LLVM code: what its declaration is checked against.

Kernels compute addresses from integers, so a parameter is followed through additions and subtractions to the address of
a store. It is followed into functions, not through memory: a parameter whose value is itself stored *escapes*, and what
is done with it after it was loaded again is not seen.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

Terms = dict[str, int]  # parameters that a value is a sum of, with their signs
VALUE = r'%(?:"[^"]*"|[\w.$-]+)'
DEFINE = re.compile(r'^define .*?@("[^"]*"|[\w.$-]+)\((.*)\)[^()]*\{$')
ASSIGN = re.compile(rf"^\s+({VALUE}) = (?:tail |musttail |notail )?(\w+)(.*)$")
EFFECT = re.compile(r"^\s+(?:tail |musttail |notail )?(store|call|fence)\b(.*)$")
CALLEE = re.compile(r'@("[^"]*"|[\w.$-]+)\(')
PASSING = {"add", "sub", "or", "and", "getelementptr", "inttoptr", "ptrtoint", "phi", "select", "freeze", "bitcast"}
PASSING |= {"insertelement", "extractelement", "shufflevector", "insertvalue", "extractvalue"}
WRITING = {"memcpy": 0, "memmove": 0, "memset": 0, "masked.store": 1, "masked.scatter": 1, "masked.compressstore": 1}


@dataclass
class Function:
    """A function's parameters and lines, and what is known of the parameters so far."""

    params: list[str]
    lines: list[str] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    escaped: set[str] = field(default_factory=set)
    done: bool = False


def stored_params(text: str, entry: str, params: list[str]) -> tuple[list[str], list[str]]:
    """Of an entry that reads `params` from the 8-byte slots at its first integer: those stored through, and escaped."""
    functions = _functions(text)
    found = functions[entry]
    _follow(found, functions, params)
    return [p for p in params if p in found.stored], [p for p in params if p in found.escaped]


def _functions(text: str) -> dict[str, Function]:
    functions: dict[str, Function] = {}
    current: Function | None = None
    for line in text.splitlines():
        if match := DEFINE.match(line):
            names = [re.findall(VALUE, part) for part in _split(match[2])]
            current = functions[match[1]] = Function([found[-1] if found else "" for found in names])
        elif line.startswith("}"):
            current = None
        elif current is not None:
            current.lines.append(line)
    return functions


def _follow(function: Function, functions: dict[str, Function], slots: list[str] | None = None) -> None:
    """Find what a function stores through; with `slots`, parameters are what it loads from its first integer on."""
    function.done = True
    terms: dict[str, Terms] = {} if slots else {name: {name: 1} for name in function.params}
    places: dict[str, int] = {}  # values that are the first integer and so many bytes
    if slots:
        places[next(name for name in function.params if name.startswith("%arg."))] = 0
    while True:
        before = sum(map(len, terms.values()))
        for line in function.lines:
            if match := ASSIGN.match(line):
                name, op, rest = match.groups()
                if slots and (place := _place(op, rest, places)) is not None:
                    if op == "load":
                        terms[name] = {slots[place // 8]: 1}
                    else:
                        places[name] = place
                elif op in PASSING:
                    terms[name] = _merged(terms.get(name, {}), _sum(op, rest, terms))
        if sum(map(len, terms.values())) == before:
            break
    for line in function.lines:
        for stored, value in _effects(line, functions):
            kind = function.stored if stored else function.escaped
            kind.update(name for name, sign in terms.get(value, {}).items() if sign)


def _place(op: str, rest: str, places: dict[str, int]) -> int | None:
    """How far behind the entry's first integer a value is, or is loaded from."""
    operands = re.findall(VALUE, rest)
    if len(operands) != 1 or operands[0] not in places or op not in ("add", "getelementptr", "inttoptr", "load"):
        return None
    offset = re.search(r", (?:i64 )?(\d+)$", rest) if op in ("add", "getelementptr") else None
    return places[operands[0]] + (int(offset[1]) if offset else 0)


def _sum(op: str, rest: str, terms: dict[str, Terms]) -> Terms:
    found: Terms = {}
    for i, operand in enumerate(re.findall(VALUE, rest)):
        for name, sign in terms.get(operand, {}).items():
            if op in ("add", "getelementptr", "or", "and"):
                found[name] = found.get(name, 0) + sign
            elif op == "sub":
                minuend = i == 0 and rest.split(",")[0].rstrip().endswith(operand)
                found[name] = found.get(name, 0) + (sign if minuend else -sign)
            else:
                found.setdefault(name, sign)
    return found


def _merged(known: Terms, new: Terms) -> Terms:
    """What is known stays: a loop may add to a value over and over."""
    return {**new, **known}


def _effects(line: str, functions: dict[str, Function]) -> Iterator[tuple[bool, str]]:
    """(stored through, or else escaping; value) of one instruction."""
    match, assign = EFFECT.match(line), ASSIGN.match(line)
    op, rest = (match[1], match[2]) if match else (assign[2], assign[3]) if assign else ("", "")
    if op == "store":
        value, address = _split(rest)[:2]
        yield from ((False, name) for name in re.findall(VALUE, value))
        yield from ((True, name) for name in re.findall(VALUE, address))
    elif op in ("atomicrmw", "cmpxchg"):
        yield from ((True, name) for name in re.findall(VALUE, _split(rest)[0]))
    elif op == "call":
        yield from _call(rest, functions)


def _call(rest: str, functions: dict[str, Function]) -> Iterator[tuple[bool, str]]:
    callee = CALLEE.search(rest)
    if callee is None:  # assembly, or a function that was passed
        loads = "tileload" in rest or "~{memory}" not in rest
        yield from ((True, name) for name in ([] if loads else re.findall(VALUE, rest.rpartition('"')[2])))
        return
    operands = [re.findall(VALUE, part) for part in _split(rest[callee.end() : rest.rindex(")")])]
    values = [found[-1] if found else "" for found in operands]
    if called := functions.get(callee[1]):
        if not called.done:
            _follow(called, functions)
        for param, value in zip(called.params, values, strict=True):
            if param in called.stored:
                yield True, value
            if param in called.escaped:
                yield False, value
        return
    for name, position in WRITING.items():
        if callee[1].startswith(f"llvm.{name}"):
            yield True, values[position]


def _split(text: str) -> list[str]:
    """Parts between commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([{<") - (char in ")]}>")
        if char == "," and not depth:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]
