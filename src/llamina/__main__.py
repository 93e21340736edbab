"""`python -m llamina` is `llamina`."""

from llamina.cli import main

main()
