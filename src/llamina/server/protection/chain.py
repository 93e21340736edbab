"""The middlewares in their order, from the network to the APIs."""

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from llamina.errors import RequestError
from llamina.server.config import Config
from llamina.server.protection.admin import AdminOnly
from llamina.server.protection.authenticate import Authenticate
from llamina.server.protection.concurrency import Concurrency
from llamina.server.protection.deadline import Deadline
from llamina.server.protection.headers import SecurityHeaders
from llamina.server.protection.hosts import Hosts, default_hosts
from llamina.server.protection.keys import Keys
from llamina.server.protection.mistakes import Mistakes
from llamina.server.protection.rate_limit import RateLimit

METHODS = ("GET", "POST", "DELETE", "OPTIONS")


def protection(config: Config, keys: Keys) -> list[Middleware]:
    """What every request to the APIs goes through. Raises RequestError for settings that do not protect."""
    return [
        Middleware(SecurityHeaders, tls=bool(config.certfile), cross_origin=bool(config.cors_origins)),
        Middleware(Mistakes),
        Middleware(Hosts, hosts=config.hosts or default_hosts(config.host), origins=config.cors_origins),
        *_cors(config),
        Middleware(Concurrency, most=config.max_concurrent),
        Middleware(Deadline, seconds=config.timeout),
        Middleware(Authenticate, config=config, keys=keys),
        Middleware(RateLimit, config=config),
    ]


def admin_protection(config: Config, keys: Keys) -> list[Middleware]:
    """The same for `/admin`: no web page, no rates, and an administrator's key, or a caller on this machine."""
    return [
        Middleware(SecurityHeaders, tls=bool(config.certfile), cross_origin=False),
        Middleware(Mistakes),
        Middleware(Hosts, hosts=config.hosts or default_hosts(config.admin_host), origins=[]),
        Middleware(Concurrency, most=config.max_concurrent),
        Middleware(Deadline, seconds=config.timeout),
        Middleware(AdminOnly, config=config, keys=keys),
    ]


def _cors(config: Config) -> list[Middleware]:
    if not config.cors_origins:
        return []
    if "*" in config.cors_origins and config.cors_credentials:
        message = "cors_origins has * and cors_credentials is true: any page could act for its reader: list origins"
        raise RequestError(message, "cors_origins")
    cors = Middleware(
        CORSMiddleware,
        allow_origins=config.cors_origins,
        allow_methods=METHODS,
        allow_headers=["*"],
        allow_credentials=config.cors_credentials,
        expose_headers=["x-request-id", "request-id", "retry-after"],
    )
    return [cors]
