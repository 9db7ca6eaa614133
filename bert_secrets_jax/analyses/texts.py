"""How analyses read texts: tokenised, annotated where words matter, in batches, in one pass."""

import dataclasses
import os
from collections.abc import Hashable, Mapping, Sequence

from jax.sharding import Mesh

from bert_secrets_jax.analyses.models import Models, all_models, seeds_of
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import BUCKETS, Batch, Encoded, bucket, mark, tokenize
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.catalogue import Described, measure, measure_change
from bert_secrets_jax.measure.statistics import Statistic
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.progress import progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """How texts are encoded, and what finds words in them.

    Attributes:
      max_length: Longer inputs are cut to so many wordpieces.
      tokens_per_batch: Rows times padded length of a batch.
      buckets: Lengths that batches are padded to.
      annotations: What is annotated in the texts, in their order; None lets spaCy find it.
      pipeline: The spaCy pipeline that finds nouns, subjects and so on.
      cache: Folder in which what spaCy found is kept; None keeps nothing.
      mesh: Devices along an axis `data`, over which each batch is split.
    """

    max_length: int = 128
    tokens_per_batch: int = 2048
    buckets: tuple[int, ...] = BUCKETS
    annotations: Sequence[Annotation] | None = None
    pipeline: str = 'en_core_web_sm'
    cache: str | os.PathLike[str] | None = None
    mesh: Mesh | None = None

    @property
    def bucketing(self) -> dict:
        """Arguments of `bucket`."""
        return {
            'max_length': self.max_length,
            'tokens_per_batch': self.tokens_per_batch,
            'buckets': self.buckets,
            'batch_multiple': 1 if self.mesh is None else self.mesh.shape['data'],
        }


def encoded_of(
    pretrained: Pretrained, texts: Sequence[Text], settings: TextSettings, *, annotated: bool
) -> Encoded:
    """Tokenise texts and mark their words.

    Args:
      pretrained: Whose tokenizer is used.
      texts: All single texts, or all pairs.
      settings: As they are.
      annotated: Whether words are needed; they are not looked for in vain.
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
    """Return the same in batches of similar length."""
    encoded = encoded_of(pretrained, texts, settings, annotated=annotated)
    return bucket(encoded, **settings.bucketing)


def in_one_pass(
    pretrained: Pretrained,
    encoded: Encoded,
    statistics: Sequence[Described],
    settings: TextSettings,
    what: str,
    *,
    also: Mapping[Hashable, Statistic] | None = None,
) -> dict[Hashable, HeadTable]:
    """Measure statistics of encoded texts, and show the progress.

    Args:
      pretrained: The model.
      encoded: What it reads.
      statistics: By name.
      settings: As they are.
      what: What is being done, for the progress.
      also: Further statistics, by any key.
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
    """Measure the model as it is, and each fine-tuned one beside it.

    Args:
      pretrained: The model as it is.
      tuned: The same model fine-tuned, several of them, or None.
      batches: What they read.
      statistics: Of one model.
      settings: As they are.
      compared: What is measured of two models together; by default the same statistics of the
        second one, and their differences.

    Returns:
      Name to table of the model as it is, and for each seed the same of what is compared.
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
