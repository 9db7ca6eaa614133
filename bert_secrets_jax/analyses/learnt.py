"""The warning about a model that has learnt nothing: whatever is said of its heads is noise."""

import math

from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.outcome import LEVEL
from bert_secrets_jax.runs.result import Finding


def learnt_nothing(p: float) -> bool:
    """Return whether a model is not significantly better than without learning, at 5 %.

    Args:
      p: The p-value from `finetune.outcome.p_learnt`. NaN counts as nothing.
    """
    return not p <= LEVEL


def not_learnt(which: str, value: float, larger_class: float, p: float, examples: int) -> Finding:
    """Return the warning, which stands before everything else.

    Args:
      which: The beginning of the sentence after 'Not learnt: ', such as 'with seed 0, the
        fine-tuned model'.
      value: The accuracy of the model or, in a regression, Pearson's correlation.
      larger_class: The share of the more frequent class; NaN in a regression.
      p: The p-value from `finetune.outcome.p_learnt`.
      examples: The number of examples.
    """
    regression = math.isnan(larger_class)
    name = 'pearson' if regression else 'accuracy'
    return Finding(
        name='the task was not learnt',
        warning=True,
        estimate=100 * value,
        unit=f'{TITLES[name]} x 100',
        sample=examples,
        source='test of a zero correlation' if regression else 'exact binomial test',
        template=(
            'Not learnt: {which} has {title} {estimate:.1f} on {sample:,} examples, which is not '
            'significantly above {bar} (p = {p:.2g}). Whatever is said below of fine-tuning and of '
            'heads that matter describes noise.'
        ),
        numbers={
            'which': which,
            'title': TITLES[name],
            'p': p,
            'bar': 'zero'
            if regression
            else f"the larger class's share of {100 * larger_class:.1f}",
        },
    )
