"""Answers that follow a grammar: GBNF, JSON schemas, regular expressions, choices and Lark.

llguidance does the work at every token (`compiler`, `constraint`: imported for the first request that needs them); GBNF
is translated to its dialect of Lark (`gbnf`, `lexemes`, `lark`).
"""

from llamina.grammar.source import KINDS, Source, source
from llamina.grammar.triggers import Triggers

__all__ = ["KINDS", "Source", "Triggers", "source"]
