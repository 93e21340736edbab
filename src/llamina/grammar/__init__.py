"""Constrained generation: answers that follow GBNF, a JSON schema, a regular expression, choices or Lark.

llguidance computes the token masks (`compiler`, `constraint`: imported for the first request that needs them); GBNF is
parsed (`gbnf`), cut into lexemes (`lexemes`) and written in llguidance's dialect of Lark (`lark`).
"""

from llamina.grammar.grammar import Grammar
from llamina.grammar.source import KINDS, Source, source
from llamina.grammar.triggers import Triggers

__all__ = ["KINDS", "Grammar", "Source", "Triggers", "source"]
