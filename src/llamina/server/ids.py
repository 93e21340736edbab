"""Identifiers of what the server keeps and answers."""

import secrets


def new_id(prefix: str) -> str:
    """A prefix and 24 random hexadecimal digits; nobody can guess another's."""
    return prefix + secrets.token_hex(12)
