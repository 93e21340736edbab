"""A server's settings: where they come from, which wins, and how mistakes are told."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from click.testing import CliRunner

from llamina.cli import serve as module
from llamina.engine.options import LoadOptions
from llamina.server import config, run, units
from llamina.server.config import LOADED, Config, ModelProfile
from llamina.server.settings import InvalidConfig, Mistake, load_config
from llamina.server.settings.read import read_table
from llamina.server.settings.table import settings
from llamina.server.settings.toml import TomlFile, key_lines
from llamina.tokenizer.named_templates import TEMPLATES


def mistakes(*args: Any, **options: Any) -> list[str]:
    with pytest.raises(InvalidConfig) as caught:
        load_config(*args, **{"environ": {}, **options})
    return [str(mistake) for mistake in caught.value.mistakes]


def test_every_setting_has_a_flag_a_variable_and_a_description() -> None:
    found = list(settings())
    assert len({s.flag for s in found}) == len({s.variable for s in found}) == len(found)
    assert [s.key for s in found if not s.about.endswith(".")] == []
    assert {"port", "limits.body_bytes", "defaults.context"} <= {s.key for s in found}
    by_key = {s.key: s for s in found}
    assert by_key["limits.body_bytes"].flag == "--limits-body-bytes"
    assert by_key["limits.body_bytes"].variable == "LLAMINA_LIMITS_BODY_BYTES"
    assert by_key["defaults.context"].flag == "--context" and by_key["defaults.context"].variable == "LLAMINA_CONTEXT"


def test_no_setting_is_without_an_effect() -> None:
    """Somebody beside the settings themselves asks for each of them."""
    server = Path(config.__file__).parent
    files = [path for path in server.rglob("*.py") if path.name != "config.py" and path.parent.name != "settings"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files) + inspect.getsource(Config.data_folder.fget)
    code += inspect.getsource(Config.database_url.fget) + inspect.getsource(ModelProfile)
    names = {s.path[-1] for s in [*settings(), *settings(ModelProfile)]} - set(LOADED)
    assert {name for name in names if f".{name}" not in code} == set()


def test_defaults_are_valid_values() -> None:
    for setting in settings():
        if setting.default is not None:
            assert setting.read(setting.default) == setting.default
            if text := setting.default_text:
                assert setting.read_text(text.strip('"')) == setting.default


def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('host = "h1"\nport = 1\nmemory = "2GiB"\n[limits]\nmessages = 7\ntools = 8\n')
    environ = {"LLAMINA_PORT": "2", "LLAMINA_HOST": "h2", "LLAMINA_LIMITS_TOOLS": "9", "LLAMINA_GRACE": ""}
    found = load_config(file, flags={"host": "h3", "defaults.keep_alive": "5m"}, environ=environ)
    assert (found.host, found.port, found.memory) == ("h3", 2, 2 << 30)
    assert (found.limits.messages, found.limits.tools, found.limits.answers) == (7, 9, Config().limits.answers)
    assert found.defaults.keep_alive == 300 and found.grace == Config().grace


def test_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamina.server.settings.load.config_dir", lambda: tmp_path)
    assert load_config(environ={}).port == 8080
    (tmp_path / "config.toml").write_text("port = 5\n")
    (tmp_path / "other.toml").write_text("port = 6\n")
    assert load_config(environ={}).port == 5
    assert load_config(environ={"LLAMINA_CONFIG": str(tmp_path / "other.toml")}).port == 6
    assert "cannot be read" in mistakes(tmp_path / "absent.toml")[0]


def test_all_mistakes_are_told_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.toml").write_text("context = 5\nx = [\n")
    (tmp_path / "models" / "other.toml").write_text('\ncontext = "many"\n')
    (tmp_path / "models" / "small.toml").write_text("context = 64\n")
    file = tmp_path / "config.toml"
    file.write_text(
        """\
# a comment
prot = 8080
memory = "8 gigs"
port = 99999

[limits]
mesages = 5

[defaults]
backend = "tpu"
sampling = { temperatur = 0.3 }

[models.small]
model = "absent.gguf"
aliases = ["gpt", "big"]
chat_template = '''
{% if %}
'''
adapters = { a = "x.gguf" }

[models.big]
contexts = 5
sampling.top_p = 7
quantize = "q9"
"""
    )
    found = [text.removeprefix(str(tmp_path) + "/") for text in mistakes(file, environ={"LLAMINA_MAX_MODELS": "none"})]
    expected = {
        "config.toml:2": "did you mean port?",
        "config.toml:3": 'must be a number of bytes, or a size like "8GiB"',
        "config.toml:4": "65535",
        "config.toml:7": "did you mean limits.messages?",
        "config.toml:10": "backend is 'tpu'",
        "config.toml:11": "did you mean temperature?",
        "config.toml:14": "'absent.gguf': there is no such file",
        "config.toml:15": "the alias 'big' is a name of the model 'big' already",
        "config.toml:16": "not valid Jinja",
        "config.toml:19": "adapters.a is 'x.gguf'",
        "config.toml:22": "did you mean models.big.context?",
        "config.toml:23": "top_p",
        "config.toml:24": "type is 'q9': must be one of",
        "models/broken.toml:2": "not valid TOML",
        "models/other.toml:2": "context is 'many'",
        "models/small.toml:1": "there is a model 'small'",
        "LLAMINA_MAX_MODELS": "expected int",
    }
    told = dict(text.split(": ", 1) for text in found)
    assert told.keys() == expected.keys() and len(found) == len(expected)
    for where, words in expected.items():
        assert words in told[where], where


def test_profiles_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "tiny.gguf").write_bytes(b"")
    (tmp_path / "chat.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "models" / "tiny.toml").write_text(
        'model = "tiny.gguf"\naliases = ["gpt"]\nkeep_alive = "1h"\n'
        'chat_template = "chat.jinja"\nsampling = { top_k = 5 }\n'
    )
    (tmp_path / "config.toml").write_text("[defaults]\ncontext = 512\nsampling = { top_k = 1, min_p = 0.5 }\n")
    found = load_config(tmp_path / "config.toml", environ={})
    profile = found.models["tiny"].over(found.defaults)
    assert profile.model == str(tmp_path / "tiny.gguf") and profile.aliases == ["gpt"] and profile.keep_alive == 3600
    options = {"context": 512, "chat_template": "{{ messages[0].content }}", "sampling": {"top_k": 5, "min_p": 0.5}}
    assert profile.load_options() == options


def test_what_takes_the_place_of_a_files_settings(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"")
    (tmp_path / "config.toml").write_text(
        '[models.a]\nmodel = "a.gguf"\nchat_template = "chatml"\nrope = { rope_scaling = "yarn", yarn_orig_ctx = 64 }\n'
    )
    options = load_config(tmp_path / "config.toml", environ={}).models["a"].load_options()
    assert options["chat_template"] == TEMPLATES["chatml"]
    assert (options["rope_scaling"], options["yarn_orig_ctx"]) == ("yarn", 64) and "rope" not in options
    for rope, words in {"{ scaling = 1 }": "did you mean rope_scaling", "{ rope_freq_base = 0 }": "above 0"}.items():
        (tmp_path / "config.toml").write_text(f'[models.a]\nmodel = "a.gguf"\nrope = {rope}\n')
        (told,) = mistakes(tmp_path / "config.toml")
        assert "config.toml:3" in told and words in told
    changes = {"chat_template": "llama3", "rope": {"rope_freq_scale": 0.5}}
    models = [("a", str(tmp_path / "a.gguf"))]
    (tmp_path / "config.toml").write_text("")
    given = load_config(tmp_path / "config.toml", models=models, changes=changes, environ={})
    assert given.models["a"].load_options()["rope_freq_scale"] == 0.5


def test_how_models_are_loaded(tmp_path: Path) -> None:
    """As `load` is told, of all models or of one; LLAMINA_PIN is about threads."""
    flags = {"defaults.quantize": "q4_k", "defaults.quantize_tensors": "attn_v=q8_0", "defaults.memory_budget": "1GiB"}
    flags |= {"defaults.offload": "pinned", "defaults.pinned": "output,0,-1", "defaults.prefetch": "2"}
    flags |= {"defaults.quantize_imatrix": "i.gguf", "defaults.requantize": "true"}
    found = load_config(None, flags=flags, models=[("m", "smollm2")], environ={"LLAMINA_PIN": "1"})
    wanted = found.models["m"].over(found.defaults).load_options()
    assert wanted == {
        "quantize": "q4_k", "quantize_tensors": {"attn_v": "q8_0"}, "quantize_imatrix": "i.gguf", "requantize": True,
        "offload": "pinned", "memory_budget": 1 << 30, "pin": ["output", 0, -1], "prefetch": 2,
    }  # fmt: skip
    assert set(wanted) <= LoadOptions.__optional_keys__
    (told,) = mistakes(flags={"defaults.quantize": "q9"})
    assert told.startswith("--quantize: quantize: type is 'q9'")


def test_the_command_line_names_the_file_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"")
    (tmp_path / "config.toml").write_text("[models.smollm2]\n[models.a]\ncontext = 99\n")
    models = [("a", str(tmp_path / "a.gguf")), ("b", str(tmp_path / "a.gguf"))]
    found = load_config(tmp_path / "config.toml", models=models, aliases=["gpt"], environ={})
    assert list(found.models) == ["a", "b", "smollm2"]
    assert found.models["a"] == ModelProfile(model=str(tmp_path / "a.gguf"), context=99, aliases=["gpt"])
    assert found.models["smollm2"].model == "smollm2"
    assert mistakes(aliases=["gpt"]) == ["--alias: there is no model that it could be another name of: give one"]


def test_lines_of_keys() -> None:
    text = 'a = 1\n\n[t."x y"]\nb = """\n[no]\nc = 1\n"""\nd.e = [\n  1,\n]\n[[l]]\nf = { g = 1 }\n[[l]]\nf = 2\n'
    found = key_lines(text)
    assert found[("a",)] == 1 and found[("t", "x y", "b")] == 4 and found[("t", "x y", "d", "e")] == 8
    assert (
        found[("l",)] == 11
        and found[("l", "0", "f", "g")] == 12
        and found[("l", "1", "f")] == 14
        and ("no",) not in found
    )


@pytest.mark.parametrize(
    ("text", "bytes"), [("12", 12), ("8GiB", 8 << 30), ("1.5m", 3 << 19), ("2 KB", 2000), ("3K", 3072), ("7b", 7)]
)
def test_sizes(text: str, bytes: int) -> None:
    assert units.size(text) == bytes


@pytest.mark.parametrize("text", ["", "-1", "8 gigs", "1e9", "GiB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        units.size(text)


def test_durations() -> None:
    assert [units.duration(text) for text in ("5", "-1", "1h30m", "250ms", "-5m")] == [5, -1, 5400, 0.25, -300]
    with pytest.raises(ValueError, match="must be"):
        units.duration("soon")


def serve(*args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "llamina", "serve", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_check_on_the_command_line(tmp_path: Path) -> None:
    """A folder is all models in it; further shards are none."""
    for name in ("one.gguf", "two.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    fine = serve(str(tmp_path), "--check", "--keep-alive", "5m", "-c", "512", "--no-load", "--sampling", "top_k=3")
    assert fine.returncode == 0, fine.stderr
    assert "3 models, big-00001-of-00002, one, two" in fine.stdout
    wrong = serve(str(tmp_path / "one.gguf"), "--check", "--port", "http", "--memory", "much")
    assert wrong.returncode == 2 and "--port: 'http'" in wrong.stderr and "--memory: 'much'" in wrong.stderr
    assert serve("--prot", "1").returncode == 2


def test_flags_of_a_model_have_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are no settings of the server; a flag wins."""
    for name in ("one.gguf", "two.gguf", "eye.gguf"):
        (tmp_path / name).write_bytes(b"")
    found: list[Config] = []
    monkeypatch.setattr(run, "serve", lambda config, tell: found.append(config) or 0)
    variables = {
        "MODELS": f"{tmp_path / 'one.gguf'},b={tmp_path / 'two.gguf'}",
        "ALIAS": "x,y",
    }
    asked: list[tuple[list[str], dict[str, str]]] = [
        ([], variables),
        (["-m", str(tmp_path / "two.gguf")], variables | {"ALIAS": ""}),
        (
            [],
            {
                "MODELS": str(tmp_path / "one.gguf"),
                "MMPROJ": str(tmp_path / "eye.gguf"),
                "CHAT_TEMPLATE": "chatml",
                "ROPE_SCALE": "2",
                "YARN_ORIG_CTX": "64",
            },
        ),
    ]
    for args, given in asked:
        env = {f"LLAMINA_{name}": value for name, value in given.items()}
        result = CliRunner().invoke(module.command, args, env=env, standalone_mode=False)
        assert result.exit_code == 0 and result.exception is None, (result.output, result.exception)
    first, second, third = (config.models for config in found)
    assert list(first) == ["one", "b"] and first["one"].aliases == ["x", "y"]
    assert list(second) == ["two"] and second["two"].aliases == []
    assert third["one"].mmproj == str(tmp_path / "eye.gguf") and "im_start" in (third["one"].chat_template or "")
    assert third["one"].rope == {"rope_freq_scale": 0.5, "yarn_orig_ctx": 64}
    variables_of = {param.name: param.envvar for param in module.command.params}
    assert {name for name in module.OF_A_MODEL if not variables_of[name]} == set()


class Person(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    age: Annotated[int, msgspec.Meta(description="Years.", ge=0)] = 0


class Club(msgspec.Struct, forbid_unknown_fields=True):
    chair: Annotated[Person | None, msgspec.Meta(description="Of the chair.")] = None
    members: list[Person] = []


def test_structs_in_structs(tmp_path: Path) -> None:
    """One that may be absent has flags; of those that there may be many of, each is checked at its own line."""
    assert [setting.flag for setting in settings(Club)] == ["--chair-name", "--chair-age"]
    assert [setting.about for setting in settings(Club)] == ["Of the chair.", "Years. Of the chair."]
    path = tmp_path / "club.toml"
    path.write_text('[chair]\nage = -1\n[[members]]\nname = "a"\n[[members]]\nnane = "b"\n')
    file, found = TomlFile(path), list[Mistake]()
    read_table(file.table, Club, file.where, found)
    assert [mistake.where.rpartition(":")[2] for mistake in found] == ["2", "6"]
    assert "did you mean members.1.name?" in found[1].message
