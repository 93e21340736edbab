"""`llamina tui` and `llamina top` where they cannot be shown."""

from collections.abc import Callable

import pytest
from click.testing import Result

Invoke = Callable[..., Result]


@pytest.mark.parametrize("verb", ["tui", "top"])
def test_without_the_extra_it_says_how_to_install_it(
    invoke: Invoke, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llamina.cli.top.find_spec", lambda name: None)
    result = invoke(verb)
    assert result.exit_code == 1 and "pip install 'llamina[tui]'" in result.stderr


@pytest.mark.parametrize("arguments", [["tui"], ["top"], ["tui", "--top"]])
def test_without_a_terminal(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 1 and "there is no terminal to draw on" in result.stderr


def test_a_server_has_its_own_models(invoke: Invoke) -> None:
    result = invoke("tui", "--url", "http://127.0.0.1:9/v1", "-c", "100")
    assert result.exit_code == 2 and "leave -hf, -c and --mmproj out" in result.stderr
