"""Arguments that analyses share: one model or several, and the labels of the texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.data.tasks import labels_of as labels_of
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import filled

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
