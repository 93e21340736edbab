"""Models that see: a picture and a question in, logits as llama.cpp's and an answer out."""

import base64
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import llamina
from golden import vision_models
from llama_vision import MARKER, finite, logits_after, rows_of
from llamina.engine.tasks.chat import prepare
from llamina.errors import ContextTooLong, InvalidPicture, RequestError, TemplateError, UnsupportedModel

PICTURES = list(vision_models.pictures())


def url(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def part(pixels: np.ndarray) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url(pixels)}}


def question(*pictures: np.ndarray) -> list[dict[str, object]]:
    content = [{"type": "text", "text": "<5>"}, *map(part, pictures), {"type": "text", "text": "<9><11>"}]
    return [{"role": "user", "content": content}]


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("qwen3vl-dense", "qwen3vl"),
        ("llama-dense", "llava"),
        ("qwen2vl-dense", "qwen2vl"),
        ("qwen2vl-dense", "qwen25vl"),
        ("gemma3-dense", "gemma3"),
        ("gemma4-dense", "gemma4v"),
        ("gemma4-shared", "gemma4v"),
        ("qwen3-dense", "internvl"),
        ("llama-dense", "minicpmv"),
        ("cogvlm-dense", "cogvlm"),
        ("lfm2-dense", "lfm2"),
        ("llama4-moe", "llama4"),
        ("mistral3-dense", "pixtral"),
        ("mistral3-dense", "mistral3"),
        ("llama-dense", "llava16"),
        ("llama-dense", "idefics3"),
        ("llama-dense", "yi_vl"),
        ("llama-dense", "ldp"),
        ("llama-dense", "ldpv2"),
        ("llama-dense", "janus_pro"),
        ("llama-dense", "kimivl"),
        ("phi3-dense", "phi4"),
        ("glm4-dense", "glm4v"),
    ],
)
def test_logits_after_pictures_are_llama_cpps(
    name: str, family: str, backend: str, talking: Callable[[str], Path], mmproj: Callable[..., Path]
) -> None:
    model, sight = talking(name), mmproj(family, 256)
    with llamina.load(model, mmproj=sight, backend=backend, kv_type="f32", context=1024) as engine:
        tokens = prepare(engine, question(*PICTURES[:2]), {})[0]
        got = engine.logits(tokens)[-4 if family == "cogvlm" else -1]  # llama.cpp has the first of a batch for the last
    marked = f"<1><5>{MARKER}{MARKER}<9><11><2><3>"
    want, position = finite(lambda: logits_after(model, sight, marked, PICTURES[:2]))
    assert np.sum(np.square(got - want)) / np.sum(np.square(want)) < (1e-4 if family == "cogvlm" else 1e-5)
    if not family.startswith(("qwen", "glm4v")):  # whose positions are those of a grid
        assert position == len(tokens)


def test_rows_today(talking: Callable[[str], Path], mmproj: Callable[..., Path], golden: Callable[[str], Path]) -> None:
    """What llama.cpp computes beside us is what it computed for the golden facts."""
    facts = np.load(golden("vision.npz"))
    found = rows_of(golden("stories260K.gguf"), mmproj("llava16"), PICTURES[1], 64)
    for j, rows in enumerate(found):
        assert np.abs(rows - facts[f"llava16.1.{j}"]).max() < 1e-2


@pytest.fixture(scope="module")
def engine(talking: Callable[[str], Path], mmproj: Callable[..., Path]) -> Iterator[llamina.Engine]:
    with llamina.load(talking("llama-dense"), mmproj=mmproj("llava", 256), threads=1) as found:
        yield found


def test_answers_to_pictures(engine: llamina.Engine) -> None:
    """The same picture from any source, counted as its rows, and its rows reused."""
    first = engine.chat(question(PICTURES[0]), max_tokens=4, temperature=0.0)
    assert first.usage.prompt_tokens == 6 + 16 and first.usage.cached_tokens == 0
    for source in (PICTURES[0], Image.fromarray(PICTURES[0]), url(PICTURES[0])):
        again = question()
        again[0]["content"].insert(1, {"type": "image", "image": source})  # type: ignore[attr-defined]
        answer = engine.chat(again, max_tokens=4, temperature=0.0)
        assert answer.tokens == first.tokens and answer.usage.cached_tokens == 16
    other = engine.chat(question(PICTURES[1]), max_tokens=4, temperature=0.0)
    assert other.usage.cached_tokens == 2 and other.tokens != first.tokens
    both = engine.chat(question(*PICTURES[:2]), max_tokens=4, temperature=0.0)
    assert both.usage.prompt_tokens == 6 + 32
    responses = [
        {"type": "input_text", "text": "<5>"},
        {"type": "input_image", "image_url": url(PICTURES[0])},
        "<9><11>",
    ]
    answer = engine.chat([{"role": "user", "content": responses}], max_tokens=4, temperature=0.0)
    assert answer.tokens == first.tokens


def test_embeddings_of_pictures(engine: llamina.Engine) -> None:
    """A message's parts as a prompt, without a template."""
    parts = [{"type": "image", "image": PICTURES[0]}, {"type": "text", "text": "<9>"}]
    both, alone = engine.encode(parts), engine.encode(parts[:1])
    assert (len(both), len(alone)) == (17, 16)
    vectors = engine.embed([both, alone, "<9>"])
    assert np.array_equal(engine.embed(both)[0], vectors[0]) and not np.allclose(vectors[0], vectors[1])
    with pytest.raises(RequestError, match="input_audio has no data"):
        engine.encode([{"type": "input_audio"}])


def test_many_who_ask_at_once(engine: llamina.Engine) -> None:
    alone = [engine.chat(question(p), max_tokens=6, seed=i).tokens for i, p in enumerate(PICTURES)]
    turns = [engine.stream_chat(question(p), max_tokens=6, seed=i) for i, p in enumerate(PICTURES)]
    plain = engine.stream_chat("<7>", max_tokens=6, seed=1)
    assert [turn.result().tokens for turn in turns] == alone
    assert plain.result().tokens == engine.chat("<7>", max_tokens=6, seed=1).tokens


def test_a_talk_about_a_picture(engine: llamina.Engine) -> None:
    messages = question(PICTURES[0])
    first = engine.chat(messages, max_tokens=3, temperature=0.0)
    messages += [first.message(), {"role": "user", "content": "<8>"}]
    second = engine.chat(messages, max_tokens=3, temperature=0.0)
    assert second.usage.cached_tokens >= 16
    session = llamina.Session(engine)
    assert (
        session.ask(question(PICTURES[0])[0]["content"], max_tokens=3, temperature=0.0).result().tokens == first.tokens
    )  # type: ignore[arg-type]
    assert session.ask("<8>", max_tokens=3, temperature=0.0).result().tokens == second.tokens
    assert engine.render_chat(messages).startswith(f"<1><5>{MARKER}<9><11><2>")


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}, InvalidPicture, "not fetched"),
        ({"type": "image_url", "image_url": {"url": "/etc/passwd"}}, InvalidPicture, "no picture"),
        ({"type": "image", "image": "cat.png"}, InvalidPicture, "pathlib.Path"),
        ({"type": "image", "image": Path("/nowhere.png")}, InvalidPicture, "cannot be read"),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, InvalidPicture, "none of PNG"),
        ({"type": "image_url"}, RequestError, "no image_url"),
        ({"type": "image_url", "image_url": "data:,", "size": 3}, RequestError, "has 'size': type and image_url"),
        ({"type": "image_url", "image_url": {"url": "data:,", "x": 3}}, RequestError, "has 'x': url and detail"),
        ({"type": "image_url", "image_url": {"url": "data:,", "detail": "x"}}, RequestError, "one of auto, low, high"),
        ({"type": "image", "image": b"", "detail": "low"}, RequestError, "has 'detail': type and image are"),
        ({"type": "video_url"}, RequestError, "'video_url': text, image_url, image, input_audio and audio"),
    ],
)
def test_what_cannot_be_shown(
    engine: llamina.Engine, content: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        engine.chat([{"role": "user", "content": [content]}])


@pytest.mark.parametrize("said", ["", "{{ m.content }}{{ m.content }}"])
def test_templates_that_do_not_show_a_picture(engine: llamina.Engine, said: str) -> None:
    template = "{% for m in messages %}" + said + "{% endfor %}<3>"
    with (
        llamina.load(engine.runner.file, chat_template=template, threads=1, context=64) as other,
        pytest.raises(TemplateError, match="not once"),
    ):
        other.chat(question(PICTURES[0]))


def test_templates_that_want_parts(engine: llamina.Engine) -> None:
    template = "{% for m in messages %}{% for p in m.content %}{{ p['text'] }}{% endfor %}{% endfor %}<3>"
    with llamina.load(engine.runner.file, chat_template=template, threads=1, context=64) as other:
        assert other.render_chat("<7>") == "<7><3>"
        assert other.render_chat(question(PICTURES[0])) == f"<5>{MARKER}<9><11><3>"


def test_the_encoder_is_found_beside_the_model(
    talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path
) -> None:
    model = shutil.copy(talking("llama-dense"), tmp_path / "tiny-Q8_0.gguf")
    with llamina.load(model, threads=1, context=64) as engine:
        assert not engine.runner.pictures.there
        with pytest.raises(RequestError, match="reads text only"):
            engine.chat(question(PICTURES[0]))
        (tmp_path / "mmproj-damaged.gguf").write_bytes(b"GGUF")
        shutil.copy(mmproj("gemma3", 256), tmp_path / "mmproj-other-f16.gguf")
        shutil.copy(mmproj("llava", 256), tmp_path / "mmproj-tiny-f16.gguf")
        assert engine.runner.pictures.there
        answer = engine.chat(question(PICTURES[0]), max_tokens=1)
        assert answer.usage.prompt_tokens == 6 + 16
    with pytest.raises(UnsupportedModel, match="belongs to another model"):
        llamina.load(model, mmproj=mmproj("llava"), threads=1)
    with pytest.raises(UnsupportedModel, match="'clip'"):
        llamina.load(model, mmproj=model, threads=1)


def test_a_picture_too_many(engine: llamina.Engine) -> None:
    with pytest.raises(llamina.LlaminaError, match="the prompt has"):
        engine.chat(question(*[PICTURES[0]] * 20))
    with pytest.raises(RequestError, match="rows have no probabilities"):
        engine.chat(question(PICTURES[0]), prompt_logprobs=1)


def test_a_picture_larger_than_the_context(
    talking: Callable[[str], Path], mmproj: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before it is encoded."""
    with llamina.load(talking("qwen2vl-dense"), mmproj=mmproj("qwen2vl", 256), threads=1, context=64) as small:
        monkeypatch.delattr("llamina.media.runner.EncoderRunner._run")
        with pytest.raises(ContextTooLong, match="a picture becomes 77 tokens and the context holds 64"):
            small.chat(question(PICTURES[2]))


@pytest.mark.parametrize(
    ("name", "family"), [("llama-dense", "llava16"), ("qwen2vl-dense", "qwen2vl"), ("gemma3-dense", "gemma3")]
)
def test_bits_do_not_depend_on_chunks_and_threads(
    name: str, family: str, talking: Callable[[str], Path], mmproj: Callable[..., Path]
) -> None:
    """A picture's rows are computed in several steps, and so are those of a grid of positions."""
    found = []
    for threads, step in ((1, 512), (2, 24)):
        with llamina.load(
            talking(name), mmproj=mmproj(family, 256), threads=threads, context=512, step_tokens=step
        ) as each:
            tokens = prepare(each, question(*PICTURES), {})[0]
            found.append((tokens, each.logits(tokens)[-1], each.chat(question(*PICTURES), max_tokens=4, seed=1).tokens))
    assert found[0][0] == found[1][0] and found[0][2] == found[1][2]
    assert np.array_equal(found[0][1], found[1][1])


def test_another_encoder_shares_no_prefix(
    talking: Callable[[str], Path], mmproj: Callable[..., Path], tmp_path: Path
) -> None:
    """What one encoder made of a picture is not taken for what another of the same width makes of it."""
    content = [{"type": "image", "image": PICTURES[0]}, {"type": "text", "text": "<9>"}]
    greedy = {"max_tokens": 3, "temperature": 0.0}
    with llamina.load(talking("llama-dense"), mmproj=mmproj("llava", 256), threads=1) as first:
        session = llamina.Session(first)
        session.ask(content, **greedy).result()  # type: ignore[arg-type]
        session.save(tmp_path / "talk")
    with llamina.load(talking("llama-dense"), mmproj=mmproj("janus_pro", 256), threads=1) as second:
        loaded = llamina.Session.load(second, tmp_path / "talk")
        answer = loaded.ask("<8>", **greedy).result()
        assert answer.usage.cached_tokens < 16
    with llamina.load(talking("llama-dense"), mmproj=mmproj("janus_pro", 256), threads=1) as alone:
        assert alone.chat(loaded.messages[:-1], **greedy).tokens == answer.tokens


def test_snapshots_and_forks_keep_pictures(engine: llamina.Engine, tmp_path: Path) -> None:
    whole = engine.chat(question(PICTURES[0]), max_tokens=8, seed=5).tokens
    turn = engine.stream_chat(question(PICTURES[0]), max_tokens=8, seed=5)
    for _ in range(3):
        next(turn)
    sequence = turn.generation.sequence
    data, twin = engine.snapshot(sequence), engine.follow(engine.fork(sequence))
    assert turn.result().tokens == whole == twin.result().tokens
    with llamina.load(engine.runner.file, threads=1, context=128) as other:
        assert other.follow(other.resume(data)).result().tokens == whole
    session = llamina.Session(engine)
    content = [{"type": "image", "image": PICTURES[0]}, {"type": "text", "text": "<9>"}]
    session.ask(content, max_tokens=3, temperature=0.0).result()
    session.save(tmp_path / "talk")
    again = llamina.Session.load(engine, tmp_path / "talk")
    found = [each.ask("<8>", max_tokens=3, temperature=0.0).result() for each in (session, again)]
    assert found[0].tokens == found[1].tokens and found[1].usage.cached_tokens >= 16
