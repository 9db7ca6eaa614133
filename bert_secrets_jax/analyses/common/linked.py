"""Results about links between words: attention along them, compared with other places."""

from bert_secrets_jax.analyses.common import links, marks
from bert_secrets_jax.analyses.common.tables import Tables
from bert_secrets_jax.runs.result import Result


class Linked(Result):
    """The attention along links between words.

    Attributes:
      tests: The attention along the links compared with other places, by direction ('verb to
        subject'). Directions along which no text has a link are left out.
      tables: The tables of the same attention by direction, in the readings of the paper and, where
        there is one, of the notebook ('verb to subject (notebook)').
    """

    tests: links.Tests
    tables: Tables

    def head_marks(self):
        return marks.mark_links(self.tests)
