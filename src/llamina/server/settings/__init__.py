"""A server's settings from flags, the environment and TOML files; every mistake is told with its place."""

from llamina.server.settings.load import load_config
from llamina.server.settings.mistakes import InvalidConfig, Mistake

__all__ = ["InvalidConfig", "Mistake", "load_config"]
