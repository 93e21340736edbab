"""Sockets that listen, and how uvicorn serves them."""

import socket
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from llamina.errors import RequestError
from llamina.server.config import Config
from llamina.server.protection.slow_headers import hurried

AFTERWARDS = 3  # seconds for clients to take the last event, after the grace period
UNTAKEN = 120  # seconds after which a connection is closed whose other end takes nothing of what is sent


def options_of(app: ASGIApp, config: Config) -> uvicorn.Config:
    """How an application is served: nothing of a request is logged, and headers about its origin are not believed."""
    return uvicorn.Config(
        app,
        http=hurried(AutoHTTPProtocol),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=int(config.grace) + AFTERWARDS,
        ws_max_size=2 * config.limits.body_bytes,  # what is over the limit gets an answer, what is far over it none
        ssl_certfile=config.certfile or None,
        ssl_keyfile=config.keyfile or None,
    )


def check_tls(config: Config) -> None:
    """Raise RequestError for TLS files that are not there, or one without the other."""
    if bool(config.certfile) != bool(config.keyfile):
        raise RequestError("TLS needs both certfile and keyfile: give the other one, too", "certfile")
    for name in ("certfile", "keyfile"):
        if (path := getattr(config, name)) and not Path(path).is_file():
            raise RequestError(f"{name} is {path}, which is not a file: give a PEM file", name)


def listen(host: str, port: int, param: str = "port") -> socket.socket:
    """A socket that listens, so that a port that is taken is an error at once. Raises RequestError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # else asyncio leaves Nagle's algorithm on
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # what is accepted inherits both: a client that is gone, or takes nothing, is noticed
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN * 1000)
    try:
        found.bind((host, port))
        found.listen(1024)
    except OSError as error:
        found.close()
        flags = "--host or --port" if param == "port" else "--admin-port"
        message = f"cannot listen on {host}:{port}: {error.strerror}: give another {flags}"
        raise RequestError(message, param) from error
    return found
