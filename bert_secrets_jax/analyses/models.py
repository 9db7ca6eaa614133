"""What analyses are given: one model or several, and the labels of their texts."""

from collections.abc import Sequence

import numpy as np

from bert_secrets_jax.data.tasks import GLUE, Example, as_examples
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained

Models = Pretrained | Finetuned | Sequence[Pretrained]


def all_models(tuned: Models) -> list[Pretrained]:
    """Return the models of a fine-tuning, of a list, or the one that is given.

    Raises:
      TypeError: Something else is given.
      ValueError: There is none.
    """
    if isinstance(tuned, Pretrained):
        return [tuned]
    models = tuned.models if isinstance(tuned, Finetuned) else tuned
    # What is no model is named, whether it is given alone or in a list.
    for model in models if isinstance(models, list | tuple) else [models]:
        if not isinstance(model, Pretrained):
            raise TypeError(
                f'{type(model).__name__} is not a model: give what `bs.from_pretrained` or '
                '`bs.finetune` returns.'
            )
    if not models:
        raise ValueError('At least one model is needed.')
    return list(models)


def one_model(tuned: Models) -> Pretrained:
    """Return the model, or the first of several."""
    return all_models(tuned)[0]


def seeds_of(tuned: Models) -> tuple[int, ...]:
    """Return what the models are called: the seeds of a fine-tuning, or else 0, 1, ..."""
    if isinstance(tuned, Finetuned):
        return tuple(tuned.seeds)
    return tuple(range(len(all_models(tuned))))


def is_known_task(task: str | None) -> bool:
    """Whether a task is one of GLUE's, by its name or its title."""
    return task is not None and task.lower() in GLUE


def metrics_for(classes: int, task: str | None = None) -> tuple[str, ...]:
    """Return the names of the metrics: GLUE's for its tasks, else by the number of classes.

    Args:
      classes: Number of classes; 1 for a regression.
      task: Name of the task, if it has one.
    """
    if is_known_task(task):
        return GLUE[task.lower()].metrics
    return metrics.metrics_for(classes)


def labels_of(examples: Sequence[Example], config: BertConfig) -> np.ndarray:
    """Return the labels [E] of examples that a model classifies.

    Raises:
      ValueError: The model has no classifier, an example has no label, or a label is none of the
        model's classes.
    """
    if not config.num_labels:
        raise ValueError(
            'The model has no classifier: give a fine-tuned one, such as `bs.finetune` returns.'
        )
    examples = as_examples(examples)
    for example in examples:
        label = example.label
        if label is None:
            raise ValueError(f'{example.id} has no label: labelled texts are needed.')
        if config.num_labels == 1:
            if not np.isfinite(label):
                raise ValueError(f'The label of {example.id}, {label}, is not a finite number.')
        elif label != int(label) or not 0 <= label < config.num_labels:
            raise ValueError(
                f'The label of {example.id} is {label}, and the model has {config.num_labels} '
                f'classes, 0 to {config.num_labels - 1}: give a model that was fine-tuned on this '
                'task.'
            )
    return np.array([example.label for example in examples])
