"""The texts of analyses: tokenised, annotated where words matter, in batches, in one pass."""

import dataclasses
import os
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from bert_secrets_jax.analyses.models import Models, all_models, seeds_of
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Batch, Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.catalogue import Described, measure, measure_change
from bert_secrets_jax.measure.statistics import Statistic
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Compute):
    """The settings for encoding texts and finding words in them.

    Attributes:
      max_length, tokens_per_batch, chunk_tokens, mesh, folder: As in `Compute`.
      buckets: The lengths to which batches are padded; None takes few that fit the texts.
      annotations: The annotation of each text, in the order of the texts; None lets spaCy find
        them.
      pipeline: The name of the spaCy pipeline that finds nouns, subjects and so on.
      cache: The folder in which spaCy's annotations are kept; None keeps none.
    """

    buckets: tuple[int, ...] | None = None
    annotations: Sequence[Annotation] | None = None
    pipeline: str = 'en_core_web_sm'
    cache: str | os.PathLike[str] | None = None

    @property
    def bucketing(self) -> dict:
        """The keyword arguments of `data.encoding.bucket`."""
        return {**self.encoding, 'buckets': self.buckets}


def encoded_of(
    pretrained: Pretrained, texts: Sequence[Text], settings: TextSettings, *, annotated: bool
) -> Encoded:
    """Tokenise texts, and mark the words in them.

    Args:
      pretrained: The model whose tokenizer is used.
      texts: The texts, all single or all pairs.
      settings: The settings for encoding the texts and finding words in them.
      annotated: Whether the annotations are needed. If not, spaCy is not run; annotations in the
        settings are always marked.
    """
    examples = as_examples(texts)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=settings.max_length)
    annotations = settings.annotations
    if annotations is None:
        if not annotated:
            return encoded
        annotations = annotate(examples, pipeline=settings.pipeline, cache=settings.cache)
    return mark(encoded, annotations)


def batches_of(
    pretrained: Pretrained,
    texts: Sequence[Text],
    settings: TextSettings,
    *,
    annotated: bool,
) -> list[Batch]:
    """Tokenise texts, mark the words in them, and return batches of similar length.

    The arguments are those of `encoded_of`.
    """
    encoded = encoded_of(pretrained, texts, settings, annotated=annotated)
    return bucket(encoded, **settings.bucketing)


def in_one_pass(
    pretrained: Pretrained,
    encoded: Encoded,
    statistics: Sequence[Described],
    settings: TextSettings,
    what: str,
    *,
    also: Mapping[Hashable, Statistic | Reduction] | None = None,
) -> dict[Hashable, Any]:
    """Measure statistics of encoded texts, and show the progress.

    Args:
      pretrained: The model.
      encoded: The tokenised and marked texts.
      statistics: The statistics to measure.
      settings: The settings for batches and devices.
      what: The name of the work in the progress bar.
      also: Further statistics to measure in the same pass, by any keys; None adds none.

    Returns:
      The tables by the names of the statistics, and what is made of `also` by its keys.
    """
    batches = bucket(encoded, **settings.bucketing)
    return measure(
        pretrained, _shown(batches, what), statistics, also=also or {}, mesh=settings.mesh
    )


def before_and_after(
    pretrained: Pretrained,
    tuned: Models | None,
    batches: Sequence[Batch],
    statistics: Sequence[Described],
    settings: TextSettings,
    *,
    compared: Sequence[Described] | None = None,
) -> tuple[dict[str, HeadTable], dict[str, dict[str, HeadTable]]]:
    """Measure a model before fine-tuning, and each fine-tuned model beside it.

    Args:
      pretrained: The model before fine-tuning.
      tuned: The same model fine-tuned, or several of them; None measures only the first model.
      batches: The batches of the texts.
      statistics: The statistics of one model.
      settings: The settings, of which only the devices are used.
      compared: The statistics that are measured of each fine-tuned model, or of it and the first
        model together; None takes `statistics`. See `measure_change`, which adds the changes.

    Returns:
      The tables of the model before fine-tuning by the name of the statistic, and the tables of
      each fine-tuned model by its seed.
    """
    before = measure(pretrained, _shown(batches, 'Attention'), statistics, mesh=settings.mesh)
    runs = {}
    if tuned is not None:
        for seed, model in zip(seeds_of(tuned), all_models(tuned), strict=True):
            runs[str(seed)] = measure_change(
                pretrained,
                model,
                _shown(batches, f'Change (seed {seed})'),
                statistics if compared is None else compared,
                mesh=settings.mesh,
            )
    return before, runs


def _shown(batches: Sequence[Batch], what: str):
    return progress(batches, what, size=lambda batch: batch.size)
