"""HTTP to a server, ours or another with OpenAI's API: connecting, and what it says when it refuses."""

import httpx

from llamina.errors import LlaminaError

PATIENCE = httpx.Timeout(10, read=600)


class ServerError(LlaminaError):
    """A server that cannot be reached, or that refuses."""


def connect(key: str | None) -> httpx.Client:
    """A client that sends the API key along, if there is one."""
    return httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=PATIENCE)


def check(response: httpx.Response) -> None:
    """Raises ServerError with what the server says."""
    if not response.is_success:
        response.read()
        raise refusal(response)


def refusal(response: httpx.Response) -> ServerError:
    """What a server says in an answer that is no success and was read."""
    try:
        error = response.json()["error"]
        said = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError):
        said = response.text[:200]
    return ServerError(f"the server answers {response.status_code}: {said}")
