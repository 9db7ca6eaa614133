"""An analysis that a stranger adds: which heads attend to the words of a list."""

import pathlib
import re
from collections.abc import Sequence

import numpy as np

from bert_secrets_jax.analyses.common.inputs import TextSettings
from bert_secrets_jax.analyses.common.tables import Tables, heads_frame, table
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.data.annotation import Annotation, Span
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.measure.statistics import attention_to
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.call import Call, an_input, call
from bert_secrets_jax.runs.result import HeadMarks, Result, extreme

TITLE = 'attention to listed words'
STATISTIC = Described(TITLE, TITLE, attention_to('listed'), unit='attention', features=('listed',))


def read_words(file: str) -> list[str]:
    """Read a list of words, one on each line."""
    return pathlib.Path(file).read_text('utf-8').split()


NEEDED = 'a list of words (setting listed_words.file)'


@an_input(missing=lambda given: '' if given['listed_words.file'] else NEEDED)
def word_list(given) -> Call:
    return call(read_words, given['listed_words.file'])


class ListedWords(Result):
    """Attention to the words of a list, and how it is put together from two kinds of heads."""

    tables: Tables

    @property
    def title(self) -> str:
        return 'Listed words'

    def findings(self):
        mean = self.tables[TITLE].mean
        top = divmod(int(mean.argmax()), mean.shape[1])
        about = {'unit': 'attention', 'source': 'a test'}
        about['template'] = '{where} attends most to the listed words: {estimate:.2f}.'
        return [extreme('listed words', top, mean.max(), **about)]

    def head_marks(self):
        most = self.tables[TITLE].mean >= self.tables[TITLE].mean.max()
        marks = np.where(most, 'listed words', '')
        return [HeadMarks(title='attends to', drawn='colour', marks=marks, sentences=marks)]


@analysis(
    question='which heads attend to the words of a list',
    group='Syntax and meaning',
    settings={
        'file': {'path': True, 'help': 'A file of words, one on each line.'},
        'updates': {'default': 20, 'range': [1, 1000], 'smoke': 2, 'help': 'Steps of the fit.'},
    },
    cost=lambda given: 1 * given.tokens('texts'),
)
def listed_words(
    pretrained: Pretrained,
    texts: Sequence[Text],
    word_list: Sequence[str],
    *,
    updates: int = 20,
    settings: TextSettings = TextSettings(),
) -> ListedWords:
    """Measure attention to the words of a list, and fit it by the layers in so many updates."""
    found = re.compile(rf'\b({"|".join(map(re.escape, word_list))})\b')
    spans = [
        [Span(*match.span()) for match in found.finditer(each.text_a)]
        for each in as_examples(texts)
    ]
    annotations = [Annotation({'listed': tuple(each)}, {}) for each in spans]
    # Passes that sections share know other words.
    own = TextSettings(max_length=settings.max_length, annotations=annotations)
    tables = own.tables(pretrained, texts, [STATISTIC])
    of_layers = tables[TITLE].mean.mean(axis=1)
    weights = np.zeros(len(of_layers))
    for _ in range(updates):
        weights += 0.5 * (of_layers.mean() - weights @ of_layers) * of_layers
    frames = {'heads': heads_frame(tables, 'attention', 'Every head.')}
    return ListedWords(tables).with_frames(frames | {'fit': table('The fit.', weight=weights)})
