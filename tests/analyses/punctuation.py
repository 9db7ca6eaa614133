"""An analysis that a stranger adds: how often a head attends most to a punctuation mark."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp

from bert_secrets_jax.analyses.declaration import Declaration
from bert_secrets_jax.analyses.tables import Tables, heads_frame
from bert_secrets_jax.analyses.texts import TextSettings
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.findings import extreme
from bert_secrets_jax.runs.result import Result, Subject

NAME = 'strongest link to punctuation'


def strongest_to_punctuation(attentions, marks):
    """Return the share of tokens that attend most to a full stop or a comma [L, N]."""
    strongest = attentions.argmax(axis=-1)
    is_mark = marks['period_comma'][strongest] * marks['token'][None, None]
    return is_mark.sum(axis=-1) / marks['token'].sum(), jnp.ones(())


STATISTIC = Described(NAME, NAME, strongest_to_punctuation, unit='share of tokens')


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Punctuation(Result):
    """How often each head attends most to a punctuation mark."""

    subject: Subject
    tables: Tables

    @property
    def title(self) -> str:
        return 'Punctuation'

    def frames(self):
        return {'heads': heads_frame(self.tables, 'share of tokens', 'Every head.')}

    def findings(self):
        mean = self.tables[NAME].mean
        top = divmod(int(mean.argmax()), mean.shape[1])
        template = '{where} attends most to punctuation from {estimate:.2f} of the tokens.'
        about = {'unit': 'share of tokens', 'template': template, 'source': 'a test'}
        return [extreme('punctuation', top, mean.max(), **about)]


def punctuation(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    settings: TextSettings | None = None,
    subject: Subject | None = None,
) -> Punctuation:
    """Measure how often heads attend most to a punctuation mark."""
    tables = (settings or TextSettings()).tables(pretrained, texts, [STATISTIC])
    return Punctuation(subject or Subject(), tables)


SECTION = Declaration(
    analysis=punctuation,
    title='how often heads attend most to punctuation',
    statistics=(STATISTIC,),
)
