"""`llamina bench serve --url` against a live server."""

import json

from click.testing import CliRunner
from live_server import Live

from llamina.cli import cli


def test_load_on_the_server(live: Live) -> None:
    """Closed and open loop, through chat and completions: every request is answered with as many tokens as asked."""
    url = f"{live.url}/v1"
    for model, api in (("smollm2", "chat"), ("stories", "completions")):
        command = ["bench", "serve", "--url", url, "-m", model, "--api", api, "-c", "2", "--rate", "50"]
        found = CliRunner().invoke(cli, [*command, "-n", "6", "-p", "24", "--total", "4", "--json"])
        assert found.exit_code == 0, found.stderr
        record = json.loads(found.stdout)
        assert record["kind"] == "url" and [r["name"] for r in record["results"]] == ["2 at a time", "50 a second"]
        for result in record["results"]:
            assert result["errors"] == 0 and result["requests"] == 4 and result["completion_tokens"] == 6
            assert 0 < result["first_token"]["p50"] < result["whole"]["p99"]
