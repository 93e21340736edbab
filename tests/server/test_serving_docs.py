"""docs/serving.md and deploy/: the reference is in step, what can run runs, and names are of what there is."""

import contextlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from live_server import PATIENCE, Live

from llamina.server.config import ModelProfile
from llamina.server.settings import load_config
from llamina.server.settings.mistakes import Mistake
from llamina.server.settings.read import read_table
from llamina.server.settings.table import settings
from skips import import_peer, needs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
SECTION = re.compile(r"^#{2,3} (.+?)$", re.MULTILINE)


def blocks(language: str) -> list[Any]:
    """(text) of the fenced blocks of a language, called by their section."""
    found = []
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        section = SECTION.findall(PAGE[: match.start()])[-1]
        found.append(pytest.param(match[1], id=section.replace(" ", "-")))
    assert found, language
    return found


def test_the_reference_is_in_step() -> None:
    path = ROOT / "tools" / "settings_table.py"
    spec = importlib.util.spec_from_file_location("settings_table", path)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.updated(PAGE) == PAGE, "run python tools/settings_table.py"
    assert all(f"`{setting.variable}`" in PAGE for setting in settings())


def test_every_client_has_a_section() -> None:
    names = "OpenAI SDK, Anthropic SDK, Ollama, LangChain, LiteLLM, Open WebUI, Codex, Claude Code, lm-eval, curl"
    assert set(names.split(", ")) <= set(SECTION.findall(PAGE))


@pytest.mark.filterwarnings("ignore")  # of the clients' own
@pytest.mark.parametrize("code", blocks("python"))
def test_programs(live: Live, code: str) -> None:
    module = re.search(r"^(?:from|import) (\w+)", code, re.MULTILINE)
    assert module is not None
    import_peer(module[1])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code.replace(ADDRESS, live.url), "docs/serving.md", "exec"), {})
    assert len(out.getvalue().strip()) > 3


@needs("peer", shutil.which("curl") is not None, "curl is not installed")
@pytest.mark.parametrize("command", blocks("sh"))
def test_commands(live: Live, command: str) -> None:
    done = subprocess.run(
        ["sh", "-c", command.replace(ADDRESS, live.url)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    if done.stdout.startswith("data: "):
        assert done.stdout.rstrip().endswith("data: [DONE]")
    else:
        assert "error" not in json.loads(done.stdout)


@pytest.mark.parametrize("text", blocks("toml"))
def test_configurations(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(text)
    assert load_config(tmp_path / "config.toml", environ={}).models["smollm2"].max_sequences == 4


def test_the_profile() -> None:
    (text,) = [param.values[0] for param in blocks("toml profile")]
    mistakes: list[Mistake] = []
    found = read_table(tomllib.loads(str(text)), ModelProfile, str, mistakes)
    assert not mistakes and found["keep_alive"] == 600


def test_other_configurations() -> None:
    for param in blocks("toml other"):
        assert tomllib.loads(str(param.values[0]))


# ---- deploy/ ---------------------------------------------------------------------------------------------

DEPLOY = ROOT / "deploy"


def test_the_dashboard_shows_metrics_that_there_are(live: Live) -> None:
    assert httpx.get(f"{live.url}/health").status_code == 200  # a request to be counted
    scraped = httpx.get(f"{live.url}/metrics")
    told = set(re.findall(r"^# TYPE llamina_(\w+)", scraped.text, re.MULTILINE))
    labels = set(re.findall(r"[{,](\w+)=\"", scraped.text))
    board = json.loads((DEPLOY / "grafana" / "llamina.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    named = [re.findall(r"llamina_(\w+)", expression) for expression in expressions]
    assert len(board["panels"]) > 8 and all(named), "every panel shows something of ours"
    assert {re.sub(r"_bucket$", "", name) for names in named for name in names} <= told
    grouped = {name for text in expressions for by in re.findall(r"by \(([^)]*)\)", text) for name in by.split(", ")}
    assert grouped <= labels


def test_the_dashboard_asks_the_source_that_is_provided() -> None:
    source = yaml.safe_load((DEPLOY / "grafana" / "datasources.yaml").read_text())["datasources"][0]
    board = json.loads((DEPLOY / "grafana" / "llamina.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    asked = urlsplit(source["url"])
    assert any(port.endswith(f":{asked.port}") for port in services[asked.hostname or ""]["ports"])
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    name, _, port = target.partition(":")
    assert any(published.endswith(f":{port}") for published in services[name]["ports"])
    assert f"EXPOSE {port}\n" in (DEPLOY / "Dockerfile").read_text()
    hosts = services[name]["environment"]["LLAMINA_HOSTS"]
    assert hosts.removeprefix("${LLAMINA_HOSTS:-").removesuffix("}").split(",") == ["localhost", "127.0.0.1", name]


def test_what_is_copied_and_mounted_is_there() -> None:
    """But for the models, which are the reader's own."""
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split()), sources
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.+)\]'", dockerfile)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    built = compose["services"]["llamina"]["build"]
    assert (DEPLOY / built["context"]).resolve() == ROOT and (ROOT / built["dockerfile"]).is_file()
    provided = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yaml").read_text())["providers"][0]["options"]["path"]
    volumes = [volume.split(":") for service in compose["services"].values() for volume in service["volumes"]]
    for source, target, *_ in volumes:
        if not source.startswith("."):
            assert source in compose["volumes"]
        elif source != "./models":
            assert (DEPLOY / source).is_file(), source
        if source.endswith("llamina.json"):
            assert target.startswith(f"{provided}/")


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "llamina.service"])
def test_variables_and_flags_in_deploy_are_settings(name: str) -> None:
    text = (DEPLOY / name).read_text()
    known = {setting.variable for setting in settings()} | {"LLAMINA_CACHE", "LLAMINA_ADMIN_KEY"}
    assert set(re.findall(r"LLAMINA_\w+", text)) <= known
    flags = {setting.flag for setting in settings()} | {"--config", "--check"}
    assert {flag for line in re.findall(r"llamina serve(.*)", text) for flag in re.findall(r"--[\w-]+", line)} <= flags


@needs("peer", shutil.which("systemd-analyze") is not None, "systemd is not installed")
def test_the_unit_is_valid(tmp_path: Path) -> None:
    """But for the program, which is not installed here."""
    unit = (DEPLOY / "llamina.service").read_text().replace("/opt/llamina/bin/llamina", "/bin/true")
    (tmp_path / "llamina.service").write_text(unit)
    command = ["systemd-analyze", "verify", str(tmp_path / "llamina.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and done.stderr == "", done.stderr
