"""GBNF: what can be written, what is refused, and that its meaning survives the translation."""

import itertools
from typing import Any

import pytest
from grammar_facts import matches, takes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamina import Tokenizer
from llamina.errors import InvalidGrammar, RequestError
from llamina.grammar import gbnf, lark, lexemes
from llamina.grammar.compiler import Compiler
from llamina.grammar.nodes import Alt, Chars, Node, Ref, Repeat, Rules, Seq, Token, characters, choice, sequence
from llamina.grammar.regular import straighten

A, B = characters([(97, 97)]), characters([(98, 98)])


def parse(text: str) -> Rules:
    return gbnf.parse(text, {"<think>": 7}.get)


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ('root ::= "a"', A),
        ('root ::= "ab"', Seq((A, B))),
        ('root ::= "a" | "b"', Alt((A, B))),
        ('root ::= "a" |\n  "b"', Alt((A, B))),
        ('root ::= "a" |', Alt((A, Seq(())))),
        ("root ::= [ab]", characters([(97, 98)])),
        ("root ::= [a-b]", characters([(97, 98)])),
        ("root ::= [a-]", characters([(97, 97), (45, 45)])),
        ("root ::= [-a]", characters([(97, 97), (45, 45)])),
        (r"root ::= [a\-b]", characters([(97, 98), (45, 45)])),
        (r"root ::= [\]\[]", characters([(91, 91), (93, 93)])),
        ("root ::= [^a]", characters([(97, 97)], negated=True)),
        ("root ::= .", characters([(0, 0x10FFFF)])),
        (r'root ::= "\x61\u0062"', Seq((A, B))),
        (r'root ::= "\U0001F600\n\t\r\\\""', sequence(characters([(ord(c), ord(c))]) for c in '😀\n\t\r\\"')),
        ("root ::= [ぁ-ゟ]", characters([(0x3041, 0x309F)])),
        ('root ::= "a"*', Repeat(A, 0, None)),
        ('root ::= "ab"+', Repeat(Seq((A, B)), 1, None)),
        ('root ::= "a"?', Repeat(A, 0, 1)),
        ('root ::= "a"{2}', Repeat(A, 2, 2)),
        ('root ::= "a"{2,}', Repeat(A, 2, None)),
        ('root ::= "a"{2,3}', Repeat(A, 2, 3)),
        ('root ::= "a"{ 2 , 3 }', Repeat(A, 2, 3)),
        ('root ::= "a"*?', Repeat(Repeat(A, 0, None), 0, 1)),
        ('root ::= ("a" "b")*', Repeat(Seq((A, B)), 0, None)),
        ('root ::= (\n "a" # one\n | "b"\n)', Alt((A, B))),
        ('# first\nroot ::= "a" # last\n\n#end', A),
        ('root ::= x-1\nx-1 ::= "a"', Ref("x-1")),
        ("root ::= <[12]>", Token(12)),
        ("root ::= !<[12]>*", Repeat(Token(12, negated=True), 0, None)),
        ("root ::= <think>", Token(7)),
        ('root ::= "b"\nroot ::= "a"', A),  # the last one counts
        ('\r\nroot ::= "a"\r\n', A),
    ],
)
def test_what_can_be_written(text: str, root: Node) -> None:
    assert parse(text)["root"] == root


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rule `root`"),
        ('x ::= "a"', r"no rule `root` \(it has: x\)"),
        ("root ::= x", "refers to `x`"),
        ('root = "a"', "line 1, column 6: '=' stands where '::=' must be"),
        ('root ::= "a', '1, column 10: " is not closed: " must follow'),
        ("root ::= [a", r"column 10: \[ is not closed: \] must follow"),
        ("root ::= [a-", r"column 10: \[ is not closed: \] must follow"),
        ("root ::= []", r"column 10: \[\] allows no character: it must allow at least one"),
        (r"root ::= [^\x00-\U0010FFFF]", "allows no character"),
        ("root ::= [xb-a]", "column 12: the range ends at 'a': it must end at 'b' or later"),
        ('root ::= ("a"', r"the grammar ends where '\)' must be"),
        ('root ::= "a")', r"column 13: '\)' stands where a symbol, `\|` or the end of the line must be"),
        ("root ::= *", r"'\*' stands where something to repeat must be"),
        ('root ::= ""*', "column 12: what is repeated is empty: it must have at least one symbol"),
        ('root ::= "a"{', "the grammar ends where a number must be"),
        ('root ::= "a"{2', "the grammar ends where '}' must be"),
        ('root ::= "a"{3,2}', r"column 13: \{3,2\} must have numbers in ascending order"),
        ('root ::= "a"{99999999}', r"\{99999999\} must have numbers in ascending order, up to 1000000"),
        ('root ::= "a"{99999999999}', "column 14: the number has 11 digits: it must have at most 9"),
        (r'root ::= "\q"', "'q' stands where one of .* after a backslash must be"),
        (r'root ::= "\x6"', r"column 11: '6\"' comes after \\x: it must be 2 hexadecimal digits"),
        (r'root ::= "\U00110000"', r"\\U00110000 is no character: it must be at most \\U0010FFFF"),
        ("root ::= <[1>", "'>' stands where ']>' must be"),
        ("root ::= <think", "column 10: < is not closed: > must follow"),
        ("root ::= !<thought>", "column 11: <thought> is not a token of the vocabulary"),
        ('root ::= "a"\n  | "b"', r"line 2, column 3: '\|' stands where the name of a rule must be"),
        ("root ::= a%", "column 11: '%' stands where"),
        ("root ::= " + "(" * 200, "column 110: this is nested bracket 101: there must be at most 100"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=message) as caught:
        parse(text)
    assert caught.value.param == "grammar" and isinstance(caught.value, RequestError)


# Small grammars over a and b, as tangled as they come.
LEAVES = st.sampled_from([A, B, A, B, characters([(97, 98)]), Ref("root"), Ref("x"), Ref("y")])
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(sequence),
        st.lists(inner, min_size=1, max_size=3).map(choice),
        st.builds(Repeat, inner, st.integers(0, 2), st.sampled_from([None, None, 2, 3])),
    ),
    max_leaves=6,
)
TEXTS = ["".join(text) for n in range(6) for text in itertools.product("ab", repeat=n)]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(root=NODES, x=NODES, y=NODES)
def test_the_meaning_is_kept(compiler: Compiler, tokenizer: Tokenizer, root: Node, x: Node, y: Node) -> None:
    """Every text of up to five letters is taken exactly if the rules, read literally, make it."""
    rules = {"root": root, "x": x, "y": y}
    expected = {text for text in TEXTS if matches(rules, text)}
    written = lark.write(lexemes.cut(rules), straighten(rules))
    try:
        found = {text for text in TEXTS if takes_letters(compiler, tokenizer, text, written)}
    except InvalidGrammar:
        assert not expected, "llguidance refuses grammars that no text satisfies"
        return
    assert found == expected


def takes_letters(compiler: Compiler, tokenizer: Tokenizer, text: str, written: str) -> bool:
    return takes(compiler, tokenizer, list(text), lark=written)


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('root ::= [a-z]* "x"', ["x", "abx", "xx"], ["", "ab"]),
        ('root ::= "a" root "b" | [ab]*', ["", "aabb", "abab", "bbb"], ["c"]),
        ('root ::= word (" " word)* end\nword ::= [a-z]+ | "(" root ")"\nend ::= "z"', ["az", "a (bz)z"], ["a", "b z"]),
        ('root ::= "(" root ")" | "if" | [a-z]+', ["if", "((if))", "(iff)", "i"], ["(if", "IF"]),
        (
            'root ::= item ("," item)*\nitem ::= ws ([0-9]+ | "[" root "]") ws\nws ::= ([ \\n] ws)?',
            ["1, 2", " [ 1,2 ] "],
            ["1 2"],
        ),
        ('root ::= .* "end" | "<" root ">"', ["end", "x\nend", "<end>", "<<endend>>"], ["en", "<enc"]),
        ('root ::= root "a" | "b"', ["b", "baa"], ["", "a", "ab"]),  # left recursion, which llama.cpp refuses
        ('root ::= (root "a")? "b"?', ["", "b", "a", "ba", "aba"], ["bb", "c"]),
        ('root ::= "é"{2} [^é]', ["éé!", "éé😀"], ["é!", "ééé"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_greed_would_go_wrong(
    compiler: Compiler, tokenizer: Tokenizer, grammar: str, yes: list[str], no: list[str]
) -> None:
    assert [takes(compiler, tokenizer, text, grammar=grammar) for text in yes] == [True] * len(yes)
    assert [takes(compiler, tokenizer, text, grammar=grammar) for text in no] == [False] * len(no)


def test_too_much_work_means_single_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = parse('root ::= "if" "(" root ")" | [a-z]+ ("," root)*')
    assert {type(node.node) for node in _lexemes(lexemes.cut(rules))} > {Chars}
    monkeypatch.setattr(lexemes, "MAX_WORK", 3)
    assert {type(node.node) for node in _lexemes(lexemes.cut(rules))} == {Chars}


def _lexemes(rules: Rules) -> list[Any]:
    from llamina.grammar.nodes import Lexeme, children

    found, stack = [], list(rules.values())
    while stack:
        node = stack.pop()
        found += [node] if isinstance(node, Lexeme) else []
        stack += children(node)
    return found


def test_large_grammars_end(compiler: Compiler, tokenizer: Tokenizer) -> None:
    """Hundreds of rules that all run into each other."""
    names = [f"r{i}" for i in range(150)]
    rules = [
        f'{n} ::= "k{i}" {names[(i + 1) % 150]} | [a-z0-9]* "," {names[i // 2]} | "."' for i, n in enumerate(names)
    ]
    grammar = "root ::= r0\n" + "\n".join(rules)
    assert takes(compiler, tokenizer, "k0k1abc,.", grammar=grammar)
    assert not takes(compiler, tokenizer, "k0;", grammar=grammar)


def test_tokens(compiler: Compiler, tokenizer: Tokenizer) -> None:
    end = tokenizer.encode("<|endoftext|>", parse_special=True)
    grammar = "root ::= <[1000]> (!<[1001]>)* <[1001]>"
    assert takes(compiler, tokenizer, [{"token": 1000}, "hello world", {"token": 1001}], grammar=grammar)
    assert not takes(compiler, tokenizer, [{"token": 1000}, {"token": 1001}, {"token": 1001}], grammar=grammar)
    by_name = 'root ::= <|endoftext|> "a"'
    assert takes(compiler, tokenizer, [{"token": end[0]}, "a"], grammar=by_name)
    assert not takes(compiler, tokenizer, "<|endoftext|>a", grammar=by_name), "spelt out it is text"
