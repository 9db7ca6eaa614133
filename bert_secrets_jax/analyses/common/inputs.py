"""Inputs that analyses share: models and whether they learnt anything, and texts in batches."""

import dataclasses
import math
import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from absl import logging

from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.data.tasks import labels_of as labels_of
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.finetune.metrics import METRICS, TITLES, p_matthews, tested
from bert_secrets_jax.finetune.outcome import LEVEL, p_learnt
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.measure.catalogue import Described, measure, measure_change
from bert_secrets_jax.measure.links import LinkScores, RandomLinks, link_scores, with_random_links
from bert_secrets_jax.measure.statistics import Statistic
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import filled
from bert_secrets_jax.progress import progress
from bert_secrets_jax.runs.result import Finding, measured

# These are undefined if all labels are the same.
_CORRELATIONS = ('pearson', 'spearman')
Models = Pretrained | Finetuned | Sequence[Pretrained]


def all_models(tuned: Models) -> list[Pretrained]:
    """Return all models of one, of several, or of a fine-tuning; anything else is a TypeError.

    A fine-tuning that has learnt nothing is told in the log: any analysis of it describes noise.
    """
    if isinstance(tuned, Pretrained):
        return [tuned]
    models = tuned.models if isinstance(tuned, Finetuned) else tuned
    # The error names the type of an item that is not a model, given alone or in a list.
    for model in models if isinstance(models, list | tuple) else [models]:
        if not isinstance(model, Pretrained):
            raise TypeError(
                f'{type(model).__name__} is not a model: give what `bs.from_pretrained` or '
                '`bs.finetune` returns.'
            )
    check_enough('models', models)
    if isinstance(tuned, Finetuned) and not tuned.learnt:
        logging.warning(
            'Not learnt: a fine-tuned model is not significantly above the larger class (or above '
            'a zero correlation). Whatever is found in it describes noise.'
        )
    return list(models)


def one_model(tuned: Models) -> Pretrained:
    """Return the model, or the first of several models."""
    return all_models(tuned)[0]


def check_alike(models: Sequence[Pretrained]) -> None:
    """Raise ValueError if models that are averaged differ in layers, heads or classes."""
    configs = [each.config for each in models]
    shapes = {
        (each.num_hidden_layers, each.num_attention_heads, each.num_labels) for each in configs
    }
    if len(shapes) > 1:
        raise ValueError(
            'The models differ in their layers, heads or classes: give fine-tunings of one recipe.'
        )


def has_own_layers(config: BertConfig) -> bool:
    """Return whether a model uses each of its layers, keys and values once."""
    own = config.num_key_value_heads in (None, config.num_attention_heads)
    return own and config.num_hidden_groups in (None, config.num_hidden_layers)


def check_several(examples: Sequence[Any]) -> None:
    """Raise ValueError for fewer examples than an interval needs."""
    check_enough('examples', examples, 2, ' for an interval')


def in_both(examples: Sequence[Example], others: Sequence[Example]) -> int:
    """Return how many of other examples have the text of one of the examples."""
    texts = {(each.text_a, each.text_b) for each in examples}
    return sum((each.text_a, each.text_b) in texts for each in others)


def elsewhere(count: int, shared: int) -> str:
    """Return so many other examples in words, and how many of them are shared with those here."""
    template = '{count:other example|other examples}'
    if shared:
        template = '{count:example|examples}, {shared} of which {shared:|is|are} among those here'
    return filled(template, {'count': count, 'shared': shared})


def seeds_of(tuned: Models) -> tuple[int, ...]:
    """Return the numbers of the models: the seeds of a fine-tuning, or else 0, 1, ..."""
    if isinstance(tuned, Finetuned):
        return tuple(tuned.seeds)
    return tuple(range(len(all_models(tuned))))


def check_varied(metric: str, labels: np.ndarray, name: str) -> None:
    """Raise ValueError if a correlation is undefined, as all labels [E] are the same."""
    if metric in _CORRELATIONS and np.ptp(labels) == 0:
        raise ValueError(
            f'All labels of {name} are {labels[0]:g} ({len(labels)} examples), so that '
            f'{metrics.TITLES[metric]} is undefined there: give examples with different labels.'
        )


def needs_own_layers(given) -> str:
    """Return what a model lacks that is to be trained again without some of its heads."""
    own = given.fits('uses layers once', has_own_layers)
    return '' if own else 'a model that uses each of its layers once'


# The metric that is tested (`finetune.metrics.tested`), its value, the share of the most frequent
# class (NaN where a correlation is tested), and the p-value if nothing was learnt.
Learnt = tuple[str, float, float, float]
_SOURCES = {
    'matthews': "Fisher's exact test",
    'accuracy': 'exact binomial test',
    'word_accuracy': "Student's t-test over texts",
    'answer_f1': "Student's t-test over texts",
}
_BARS = {
    'accuracy': 'guessing ({:.1f})',
    'word_accuracy': 'guessing ({:.1f})',
    'answer_f1': 'answers at the same places in other texts',
}


def learning_test(
    metrics: Sequence[str], classes: int, predictions: np.ndarray, labels: np.ndarray
) -> Learnt:
    """Test whether a model has learnt anything, from its predictions [E] and the labels [E].

    The first metric is the most important. One class means regression.
    """
    name = tested(metrics, classes)
    value = METRICS[name](predictions, labels)
    if name == 'matthews':
        return name, value, math.nan, p_matthews(predictions, labels)
    larger = math.nan
    if name == 'accuracy':
        larger = float(np.unique_counts(labels).counts.max() / len(labels))
    return name, value, larger, p_learnt(value, larger, len(labels))


def learnt_nothing(p: float) -> bool:
    """Return whether a model is not significantly better than without learning; NaN is not."""
    return not p <= LEVEL


def not_learnt(
    which: str, test: Learnt, examples: int, *, so: str = 'what follows about heads is noise'
) -> Finding:
    """Return the warning about a model such as 'the model of seed 0', and what follows (`so`)."""
    metric, value, larger_class, p = test
    return measured(
        'the task was not learnt',
        100 * value,
        warning=True,
        unit=f'{TITLES[metric]} x 100',
        sample=examples,
        source=_SOURCES.get(metric, 'test of a zero correlation'),
        template='Not learnt: {which} has {title} {estimate:.1f}, not clearly above {bar}; {so}.',
        p=p,
        which=which,
        title=TITLES[metric],
        so=so,
        bar=_BARS.get(metric, 'zero').format(100 * larger_class),
    )


def unless_noise(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings; after a warning, none that calls a head or a layer best or worst."""
    if not any(each.warning for each in findings):
        return list(findings)
    return [each for each in findings if not re.search(r'\b(best|worst)\b', each.sentence)]


def if_not_learnt(which: str, test: Learnt, examples: int) -> list[Finding]:
    """Return the warning about a model that has learnt nothing, and none about another one."""
    return [not_learnt(which, test, examples)] if learnt_nothing(test[-1]) else []


def seeds_not_learnt(
    seeds: Sequence[int], tests: Sequence[Learnt], model: str, examples: int
) -> Iterator[Finding]:
    """Yield the warning about each model, named such as 'the model', that has learnt nothing."""
    for seed, test in zip(seeds, tests, strict=True):
        for found in if_not_learnt(f'{model} of seed {seed}', test, examples):
            yield dataclasses.replace(found, name=f'{found.name}: seed {seed}')


K = TypeVar('K', bound=Hashable)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Compute):
    """The settings for encoding texts and finding words in them.

    Attributes:
      max_length, tokens_per_batch, chunk_tokens, mesh, folder: As in `Compute`.
      buckets: The lengths to which batches are padded; None takes few that fit the texts.
      annotations: The annotation of each text, in the order of the texts, such as `bs.annotate`
        makes of the sentences of a treebank; None lets spaCy find them.
      pipeline: The name of the spaCy pipeline that finds nouns, subjects and so on.
      cache: The folder in which spaCy's annotations are kept; None keeps none.
      language: The language of the texts, as for `bs.annotate`.
    """

    buckets: tuple[int, ...] | None = None
    annotations: Sequence[Annotation] | None = None
    pipeline: str = 'en_core_web_sm'
    cache: str | os.PathLike[str] | None = None
    language: str = ''

    @property
    def bucketing(self) -> dict:
        """The keyword arguments of `data.encoding.bucket`."""
        return {**self.encoding, 'buckets': self.buckets}

    def tables(
        self, pretrained: Pretrained, texts: Sequence[Text], statistics: Sequence[Described]
    ) -> dict[str, HeadTable]:
        """Return the tables of statistics of a model, by their names, from one pass over texts."""
        encoded = encoded_of(pretrained, texts, self, annotated=_need_words(statistics))
        return in_one_pass(pretrained, encoded, statistics, self, 'Attention')

    def changes(
        self,
        pretrained: Pretrained,
        tuned: Models | None,
        texts: Sequence[Text],
        statistics: Sequence[Described],
    ) -> dict[str, dict[str, HeadTable]]:
        """Return the tables (`measure_change`) of each fine-tuned model by its seed, if any."""
        if tuned is None:
            return {}
        batches = batches_of(pretrained, texts, self, annotated=_need_words(statistics))
        changed = {}
        for seed, model in zip(seeds_of(tuned), all_models(tuned), strict=True):
            read = pretrained, model, with_progress(batches, f'Change (seed {seed})')
            changed[str(seed)] = measure_change(*read, statistics, mesh=self.mesh)
        return changed

    def links(
        self,
        pretrained: Pretrained,
        texts: Sequence[Text],
        relations: Sequence[str],
        statistics: Sequence[Described],
        *,
        draws: int,
        seed: int,
    ) -> tuple[dict[str | RandomLinks, Any], dict[str, LinkScores]]:
        """Return tables of attention along links, and parts of tests by direction, from one pass.

        Statistics that need a relation which the annotations lack are left out. The tests compare
        links with random places, of which so many are drawn for each link, of each kind.
        """
        encoded = encoded_of(pretrained, texts, self, annotated=True)
        with_random, random = with_random_links(encoded, relations, draws=draws, seed=seed)
        wanted = [each for each in statistics if set(each.relations) <= set(encoded.marks)]
        tables = in_one_pass(pretrained, with_random, wanted, self, 'Relations', also=random)
        return tables, link_scores(encoded, relations, tables)


def encoded_of(
    pretrained: Pretrained, texts: Sequence[Text], settings: TextSettings, *, annotated: bool
) -> Encoded:
    """Tokenise texts and mark the words in them; spaCy is run only if they must be `annotated`."""
    examples = as_examples(texts)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=settings.max_length)
    annotations = settings.annotations
    if annotations is None:
        if not annotated:
            return encoded
        how = {name: getattr(settings, name) for name in ('pipeline', 'cache', 'language')}
        annotations = annotate(examples, **how)
    return mark(encoded, annotations)


def batches_of(
    pretrained: Pretrained, texts: Sequence[Text], settings: TextSettings, *, annotated: bool
) -> list[Batch]:
    """Return the batches of similar length of what `encoded_of` returns."""
    encoded = encoded_of(pretrained, texts, settings, annotated=annotated)
    return bucket(encoded, **settings.bucketing)


def readable(
    pretrained: Pretrained, examples: Sequence[Example], *, count: int, max_length: int | None
) -> list[Example]:
    """Return examples that are short enough for a figure, spread evenly over the shortest fifth."""
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    by_length = np.argsort(encoded.lengths, kind='stable')
    shortest = by_length[: max(count, len(by_length) // 5)]
    places = np.linspace(0, len(shortest) - 1, min(count, len(shortest))).astype(int)
    return [examples[place] for place in shortest[places].tolist()]


def in_one_pass(
    pretrained: Pretrained,
    encoded: Encoded,
    statistics: Sequence[Described],
    settings: TextSettings,
    what: str,
    *,
    also: Mapping[K, Statistic | Reduction] = MappingProxyType({}),
) -> dict[str | K, Any]:
    """Return tables of encoded texts by the names of statistics, and by the keys of `also`."""
    shown = with_progress(bucket(encoded, **settings.bucketing), what)
    return measure(pretrained, shown, statistics, also=also, mesh=settings.mesh)


def _need_words(statistics: Sequence[Described]) -> bool:
    return any(each.annotated for each in statistics)


def with_progress(batches: Sequence[Batch], what: str):
    """Return an iterator over batches that shows how far it is."""
    return progress(batches, what, size=lambda batch: batch.size)
