"""`python -m llamina` is `llamina`."""

from .cli import main

main()
