"""Requests put away and taken up again, here and in another process; and everything that must be refused."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llamina
from llamina import Engine, Request, Sampling, Session
from llamina.engine import Sequence
from llamina.engine.snapshot.format import HEAD, Snapshot
from llamina.errors import ContextTooLong, RequestError, SnapshotError
from llamina.gguf import GGUF, fingerprint, open_model, write

PROMPT = [1, *[3 + 7 * i % 500 for i in range(99)]]
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 1.3, "seed": 5},
    {"temperature": 1.3},
    {"temperature": 1.0, "mirostat": 2, "seed": 1},
    {"temperature": 1.0, "logit_bias": {13: -np.inf, 14: 1.5}, "repeat_penalty": 1.3, "samplers": ["top_k"]},
]
OTHER_PROCESS = """
import sys, json, llamina
path, data = sys.argv[1:]
with llamina.load(path, context=256, step_tokens=7) as engine:
    sequence = engine.resume(open(data, "rb").read())
    first = sequence.computed
    while sequence.finish_reason is None:
        engine.step()
    print(json.dumps([first, sequence.generated, sequence.text, sequence.finish_reason]))
"""


@pytest.fixture(scope="module")
def engine(stories: Path) -> Iterator[Engine]:
    with llamina.load(stories, threads=1, context=256) as found:
        yield found


def test_files_and_what_they_hold(engine: Engine, tmp_path: Path) -> None:
    path, sequence = tmp_path / "talk.llamina", begun(engine, 4, temperature=0)
    data = engine.snapshot(sequence, path)
    engine.cancel(sequence)
    assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]
    info = llamina.snapshot_info(path)
    assert info == llamina.snapshot_info(data) and info.nbytes == len(data)
    assert (info.prompt_tokens, info.generated_tokens, info.computed_tokens) == (len(PROMPT), 4, len(PROMPT) + 3)
    assert (info.kv_type, info.finish_reason, info.messages, info.adapters) == ("f16", None, None, ())
    assert info.fingerprint == engine.runner.fingerprint
    resumed = engine.resume(path)
    assert resumed.generated == sequence.generated
    engine.cancel(resumed)
    with pytest.raises(SnapshotError, match="cannot be read"):
        engine.resume(tmp_path / "none")
    with pytest.raises(SnapshotError, match="cannot be written"):
        engine.snapshot(resumed, tmp_path / "none" / "x")
    with pytest.raises(SnapshotError, match="not a snapshot"):
        llamina.snapshot_info(b"something")


def test_what_a_conversation_holds(talker: Path, tmp_path: Path) -> None:
    with llamina.load(talker, threads=1, context=256) as engine:
        session = Session(engine)
        session.ask("Hello", max_tokens=4).result()
        session.save(tmp_path / "talk")
    info = llamina.snapshot_info(tmp_path / "talk")
    assert info.messages == 2 and info.finish_reason in ("length", "stop") and info.generated_tokens <= 4


def test_other_rope_settings_compute_again(stories: Path) -> None:
    """Keys are rotated: states of another rotation are not taken over."""
    with llamina.load(stories, threads=1, context=256) as engine:
        data = engine.snapshot(begun(engine, 3, temperature=0))
    with llamina.load(stories, threads=1, context=256, rope_freq_base=500.0) as engine:
        sequence = engine.resume(data)
        assert sequence.computed == 0 and len(sequence.generated) == 3


def begun(engine: Engine, n: int, made: int = 40, **options: Any) -> Sequence:
    """A sequence that has made n tokens, in an engine that kept nothing."""
    engine.core.pages.forget()
    asked = {k: options.pop(k) for k in ("cache_prompt", "stop") if k in options}
    sequence = engine.submit(Request(PROMPT, Sampling(**options), made, ignore_eos=True, **asked))
    while len(sequence.generated) < n:
        engine.step()
    return sequence


def finish(engine: Engine, *sequences: Sequence) -> None:
    while any(s.finish_reason is None for s in sequences):
        engine.step()


def told(sequence: Sequence) -> tuple[list[int], str, str | None]:
    return sequence.generated, sequence.text, sequence.finish_reason


@pytest.mark.parametrize("options", SAMPLINGS, ids=lambda o: ",".join(o))
@pytest.mark.parametrize("n", [0, 5])
def test_goes_on_as_it_would_have(engine: Engine, stories: Path, options: dict[str, Any], n: int) -> None:
    sequence = begun(engine, n, **options)
    data = engine.snapshot(sequence)
    finish(engine, sequence)
    with llamina.load(stories, threads=2, context=300, step_tokens=9) as other:
        again = other.resume(data)
        assert again.computed == (104 if n else 0) and len(again.generated) == n
        if n:
            assert again in other.core.running, "nothing is computed again"
        finish(other, again)
        assert told(again) == told(sequence) and other.core.pages.free == other.core.pages.total
    twin = engine.resume(data)
    finish(engine, twin)
    assert told(twin) == told(sequence)


def test_in_another_process(engine: Engine, stories: Path, tmp_path: Path) -> None:
    sequence = begun(engine, 7, temperature=1.1, stop=["zzz"])
    (tmp_path / "snapshot").write_bytes(engine.snapshot(sequence))
    finish(engine, sequence)
    command = [sys.executable, "-c", OTHER_PROCESS, str(stories), str(tmp_path / "snapshot")]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert result == [106, *told(sequence)]


def test_stop_strings_and_characters_under_way(engine: Engine) -> None:
    """Half a stop string and half a character are remembered."""
    sequence = engine.submit(Request([1], max_tokens=20, stop=["ab!"]))
    *tokens, last = engine.encode("xab🦙", add_special=False)
    engine.rewind(sequence, 0, tokens)
    twin = engine.resume(engine.snapshot(sequence))
    assert twin.output.pieces == sequence.output.pieces == [" ", "x"]
    for s in (sequence, twin):
        engine.rewind(s, 0, [last])
    assert twin.text == sequence.text and twin.text.endswith("xab🦙")
    for s in (sequence, twin):
        engine.cancel(s)


def test_what_was_done_is_only_remembered(engine: Engine, stories: Path) -> None:
    sequence = begun(engine, 20, made=20, temperature=0)
    assert sequence.finish_reason == "length"
    data = engine.snapshot(sequence)
    with llamina.load(stories, threads=1, context=256) as other:
        again = other.resume(data)
        assert told(again) == told(sequence) and not other.core.running and not other.core.waiting
        assert other.core.pages.kept == 7
        after = other.generate([*PROMPT, *sequence.generated, 9], temperature=0, max_tokens=5, ignore_eos=True)
        assert after.usage.cached_tokens == 112
        assert after.tokens == engine.generate([*PROMPT, *sequence.generated, 9], temperature=0, max_tokens=5).tokens


def test_without_room_it_waits(engine: Engine, stories: Path) -> None:
    sequences = [begun(engine, 5, temperature=1.0, seed=i, cache_prompt=i % 2 > 0) for i in range(4)]
    data = [engine.snapshot(s) for s in sequences]
    finish(engine, *sequences)
    with llamina.load(stories, threads=1, context=256, max_sequences=2, cache_tokens=256) as other:
        resumed = [other.resume(d) for d in data]
        assert len(other.core.running) == 2 and len(other.core.waiting) == 2
        finish(other, *resumed)
        assert [told(s) for s in resumed] == [told(s) for s in sequences]
        assert other.core.pages.free == other.core.pages.total


@pytest.mark.parametrize("options", [{"kv_type": "f32"}, {"backend": "reference"}], ids=str)
def test_another_layout_is_computed_again(engine: Engine, stories: Path, options: dict[str, Any]) -> None:
    """Tokens are tokens: it goes on from them, with the numbers of the program it is in."""
    sequence = begun(engine, 5, made=8, temperature=0)
    data = engine.snapshot(sequence)
    engine.cancel(sequence)
    with llamina.load(stories, threads=1, context=256, **options) as other:
        again = other.resume(data)
        finish(other, again)
        expected = other.generate([*PROMPT, *sequence.generated[:5]], temperature=0, max_tokens=3, cache_prompt=False)
        assert again.generated[5:] == expected.tokens


def test_damage_is_noticed(engine: Engine) -> None:
    sequence = begun(engine, 5, temperature=0)
    data = engine.snapshot(sequence)
    engine.cancel(sequence)
    for at in (HEAD.size - 3, HEAD.size + 5, len(data) // 2, len(data) - 1):
        broken = bytearray(data)
        broken[at] ^= 1
        with pytest.raises(SnapshotError, match="damaged"):
            engine.resume(bytes(broken))
    for cut in (data[:-1], data + b"x", data[: HEAD.size], data[: HEAD.size + 20]):
        with pytest.raises(SnapshotError, match="damaged"):
            engine.resume(cut)
    for nothing in (b"", data[:20], b"GGUF" + data[4:], b"x" * 100):
        with pytest.raises(SnapshotError, match="not a snapshot"):
            engine.resume(nothing)
    with pytest.raises(SnapshotError, match="version 7"):
        engine.resume(data[:8] + (7).to_bytes(4, "little") + data[12:])
    assert not engine.core.running and not engine.core.waiting and engine.core.pages.free == engine.core.pages.total


def test_states_of_the_wrong_length(engine: Engine) -> None:
    sequence = begun(engine, 5, temperature=0)
    snapshot = Snapshot.unpack(engine.snapshot(sequence))
    engine.cancel(sequence)
    with pytest.raises(SnapshotError, match="bytes of states"):
        engine.resume(Snapshot(snapshot.header, snapshot.states[:-16]).pack())
    assert not engine.core.running and engine.core.pages.free == engine.core.pages.total


@pytest.mark.parametrize(("part", "kind"), [("asked", "Request"), ("sampling", "Sampling"), ("triggers", "Triggers")])
def test_a_request_of_another_version(engine: Engine, part: str, kind: str) -> None:
    """What it asks for and is not known here cannot be left out; what is not asked for has its default."""
    sequence = begun(engine, 5, temperature=0)
    snapshot = Snapshot.unpack(engine.snapshot(sequence))
    engine.cancel(sequence)
    asked = snapshot.header["request"]
    header = snapshot.header | {"request": asked | {part: (asked[part] or {}) | {"wisdom": 3}}}
    with pytest.raises(SnapshotError, match=f"wisdom of a {kind}.*: restore it with the version that wrote it"):
        engine.resume(Snapshot(header, snapshot.states).pack())
    assert not engine.core.running and engine.core.pages.free == engine.core.pages.total
    older = {name: value for name, value in asked["asked"].items() if name != "bad_words"}
    resumed = engine.resume(Snapshot(snapshot.header | {"request": asked | {"asked": older}}, snapshot.states).pack())
    assert resumed.request.bad_words == ()
    engine.cancel(resumed)


def changed(stories: Path, path: Path, **metadata: object) -> GGUF:
    """The model with other metadata, or, without any, one weight changed."""
    file = open_model(stories)
    tensors = [(t.name, t.shape, t.type, t.data.copy()) for t in file.tensors.values()]
    if not metadata:
        tensors[3][3][5] ^= 1
    write(path, {**file.metadata, **metadata}, tensors, metadata_types=file.metadata_types)
    return open_model(path)


def test_another_model_is_refused(engine: Engine, stories: Path, tmp_path: Path) -> None:
    sequence = begun(engine, 5, temperature=0)
    data = engine.snapshot(sequence)
    engine.cancel(sequence)
    with llamina.load(changed(stories, tmp_path / "other.gguf"), threads=1, context=256) as other:
        with pytest.raises(SnapshotError, match="another model"):
            other.resume(data)
        assert not other.core.waiting and other.core.pages.kept == 0


def test_fingerprints_are_of_contents(stories: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(stories.read_bytes())
    name = {"general.name": open_model(stories).metadata["general.name"]}
    files = [
        open_model(stories),
        open_model(copy),
        changed(stories, tmp_path / "same.gguf", **name),
        changed(stories, tmp_path / "weight.gguf"),
        changed(stories, tmp_path / "name.gguf", **{"general.name": "another"}),
    ]
    prints = [fingerprint(file) for file in files]
    assert len(set(prints[:3])) == 1 and len(set(prints)) == 3


def test_what_cannot_be_put_away(engine: Engine) -> None:
    for sequence in (
        engine.submit(Request([1, 2], reads=range(2))),
        engine.submit(Request([1, 2], logits_processor=lambda tokens, logits: logits)),
    ):
        with pytest.raises(RequestError, match="cannot be put into a snapshot"):
            engine.snapshot(sequence)
        engine.cancel(sequence)


def test_a_smaller_context(engine: Engine, stories: Path) -> None:
    sequence = begun(engine, 5, temperature=0)
    data = engine.snapshot(sequence)
    engine.cancel(sequence)
    with llamina.load(stories, threads=1, context=64) as other:
        with pytest.raises(ContextTooLong, match="105 tokens"):
            other.resume(data)
        assert not other.core.waiting and other.core.pages.kept == 0


def test_following_a_resumed_request(engine: Engine) -> None:
    stream = engine.stream(PROMPT, temperature=0, max_tokens=20)
    pieces = [str(next(stream)) for _ in range(5)]
    data = engine.snapshot(stream.sequence)
    rest = [str(delta) for delta in stream]
    again = engine.follow(engine.resume(data))
    assert "".join(map(str, again)) == "".join(rest)
    assert again.result().text == "".join(pieces + rest)


def test_conversations(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
    system = [{"role": "system", "content": "You are a helpful assistant who answers in one short sentence."}]
    with llamina.load(smollm2, threads=2, context=512) as engine:
        session = Session(engine, system)
        with pytest.raises(RequestError, match="nothing was asked"):
            session.save(path)
        first = session.ask("What is the capital of France?", **options).result()
        session.save(path)
        second = session.ask("And of Japan?", **options).result()
        messages = session.messages
        with pytest.raises(RequestError):
            session.ask("more", temprature=1)
        assert session.messages == messages
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    with llamina.load(smollm2, threads=1, context=400) as engine:
        session = Session.load(engine, path)
        assert session.messages == messages[:3] and messages[2]["content"] == first.text
        again = session.ask("And of Japan?", **options).result()
        assert (again.text, again.tokens) == (second.text, second.tokens)
        assert again.usage.cached_tokens >= 32, "what was said before is not computed again"
        assert session.messages == messages
        sequence = engine.submit(Request([1, 2], max_tokens=3))
        path.write_bytes(engine.snapshot(sequence))
        with pytest.raises(SnapshotError, match="not a conversation"):
            Session.load(engine, path)
        with pytest.raises(SnapshotError, match="cannot be read"):
            Session.load(engine, tmp_path / "nothing")
        with pytest.raises(SnapshotError, match="cannot be written"):
            session.save(tmp_path / "no" / "folder")
