"""The texts of analyses: tokenised, annotated where words matter, in batches, in one pass."""

import dataclasses
import os
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from bert_secrets_jax.analyses.common.models import Models, all_models, seeds_of
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.measure.catalogue import Described, measure, measure_change
from bert_secrets_jax.measure.links import LinkScores, RandomLinks, link_scores, with_random_links
from bert_secrets_jax.measure.statistics import Statistic
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress

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
