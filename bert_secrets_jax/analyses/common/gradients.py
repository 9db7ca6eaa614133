"""The loss whose gradients tell what attention is of use, and these gradients, by type of token."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bert_secrets_jax.analyses.common.models import labels_of
from bert_secrets_jax.analyses.common.tables import Tables
from bert_secrets_jax.analyses.common.texts import TextSettings, batches_of, with_progress
from bert_secrets_jax.data.encoding import with_labels
from bert_secrets_jax.data.masking import Masking, mask_words
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.losses import task_loss
from bert_secrets_jax.measure.gradients import gradient_importance, masked_lm_loss
from bert_secrets_jax.model.config import MASKED_LM, SEQUENCES
from bert_secrets_jax.model.weights import Pretrained

HIDDEN, CLASSES, REGRESSION = (
    'the loss of the masked LM',
    'the cross entropy of the task',
    'the squared error of the task',
)
# Gradients take about as many times the memory of a forward pass.
_MEMORY = 4
_UNITS = {HIDDEN: 'nats', CLASSES: 'nats', REGRESSION: 'squared error'}


@dataclasses.dataclass(frozen=True)
class Gradients:
    """How much a loss depends on attention to each type of token.

    Attributes:
      loss: The name of the loss: HIDDEN, CLASSES or REGRESSION.
      tables: The mean of |d loss / d attention| for each head, by the type of token.
      of: The model, if it is another than the one that is studied, such as 'fine-tuned, seed 0'.
    """

    loss: str
    tables: Tables
    of: str = ''

    @property
    def title(self) -> str:
        """The loss that the gradients are of, as a noun phrase."""
        return self.loss + (f' ({self.of})' if self.of else '')

    @property
    def unit(self) -> str:
        """The unit of the gradients."""
        return f'{_UNITS[self.loss]} per unit of attention'


def loss_of(pretrained: Pretrained, examples: Sequence[Example]) -> str:
    """Return the name of the loss that a model has on texts; ValueError if it has none."""
    config = pretrained.config
    if config.head == MASKED_LM:
        return HIDDEN
    if config.head != SEQUENCES or not config.num_labels:
        raise ValueError(
            f'The model ({config.summary}) has no loss to take gradients of: give a masked LM '
            '(bs.with_masked_lm), or a classifier of texts and labelled texts.'
        )
    labels_of(examples, config)
    return REGRESSION if config.num_labels == 1 else CLASSES


def gradients_of(
    pretrained: Pretrained,
    examples: Sequence[Example],
    *,
    masking: Masking | None = None,
    settings: TextSettings = TextSettings(),
) -> Gradients:
    """Measure how much the loss of each text depends on attention to each type of token.

    The loss is that of `loss_of`; `measure.gradients.gradient_importance` says what is averaged.
    """
    # The way back needs all maps of a batch, and the scores of all wordpieces.
    fewer = max(settings.tokens_per_batch // _MEMORY, 1)
    settings = dataclasses.replace(settings, tokens_per_batch=fewer)
    name = loss_of(pretrained, examples)
    if name == HIDDEN:
        masked = mask_words(pretrained.tokenizer, examples, masking=masking, **settings.bucketing)
        batches = masked.batches
    else:
        labels = labels_of(examples, pretrained.config)
        plain = batches_of(pretrained, examples, settings, annotated=False)
        batches = [with_labels(batch, labels) for batch in plain]
    tables = gradient_importance(
        pretrained,
        with_progress(batches, 'Gradients'),
        masked_lm_loss if name == HIDDEN else task_loss,
        mesh=settings.mesh,
    )
    return Gradients(name, tables)


def gradients_or_why(
    pretrained: Pretrained, examples: Sequence[Example], **options: Any
) -> tuple[Gradients | None, str]:
    """Return what `gradients_of` does with these options, or None and why it cannot."""
    try:
        return gradients_of(pretrained, examples, **options), ''
    except ValueError as error:
        # Such as of a model of tags, of texts without labels, or with nothing that can be hidden.
        return None, str(error)
