"""How much each head of a fine-tuned model is needed, by several methods on the same examples.

Shapes: E examples, P parts, L layers, N heads.
"""

import dataclasses
import operator
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.ablation.masks import single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.checks import check_name, check_names
from bert_secrets_jax.compute import Compute, Encoding
from bert_secrets_jax.data.encoding import bucket, tokenize, with_labels
from bert_secrets_jax.data.tasks import Example, labels_of
from bert_secrets_jax.finetune.losses import losses_of, task_loss
from bert_secrets_jax.measure.gradients import NORMS, head_importance, normalised
from bert_secrets_jax.measure.relevance import head_relevance
from bert_secrets_jax.measure.statistics import confidence
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.progress import progress
from bert_secrets_jax.pruning.shapley import check_permutations, shapley_values

GRADIENT, CONFIDENCE, RELEVANCE = 'gradient', 'confidence', 'relevance'
REMOVAL, SHAPLEY = 'removal', 'shapley'
METHODS = (GRADIENT, CONFIDENCE, RELEVANCE, REMOVAL, SHAPLEY)
TITLES: Mapping[str, str] = {
    GRADIENT: 'gradient of the mask',
    CONFIDENCE: 'confidence',
    RELEVANCE: 'relevance',
    REMOVAL: 'loss without the head',
    SHAPLEY: 'Shapley value',
}
SOURCES: Mapping[str, str] = {
    GRADIENT: 'Michel et al. 2019, section 4.1',
    CONFIDENCE: 'Voita et al. 2019, section 4',
    RELEVANCE: 'Voita et al. 2019, section 4',
    REMOVAL: 'Michel et al. 2019, section 3.2',
    SHAPLEY: 'Held and Yang 2023',
}
# Gradients and relevance take about as many times the memory of a forward pass.
_MEMORY = 4


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class HeadScores:
    """How much each head is needed, by method, also by part: examples, or pairs of permutations."""

    parts: Mapping[str, Float[np.ndarray, 'P L N']]
    norm: str
    examples: int

    @property
    def of(self) -> dict[str, Float[np.ndarray, 'L N']]:
        """The score of each head, by the name of the method; greater is needed more."""
        return {
            method: self.score(method, each.mean(axis=0)) for method, each in self.parts.items()
        }

    def score(self, method: str, means: Float[np.ndarray, 'L N']) -> Float[np.ndarray, 'L N']:
        """Return the scores of the heads from means over parts, of which some may be left out."""
        if method == GRADIENT:
            return normalised(means, norm=self.norm)
        if method == RELEVANCE:
            total = np.abs(means).sum(axis=1, keepdims=True)
            return means / np.where(total > 0, total, 1)
        return means


def head_scores(
    tuned: Pretrained,
    examples: Sequence[Example],
    *,
    methods: Sequence[str] | None = None,
    permutations: int = 0,
    norm: str = 'layer',
    head_mask: np.ndarray | None = None,
    seed: int = 0,
    compute: Compute = Compute(),
) -> HeadScores:
    """Measure how much each head of a fine-tuned model is needed, against putting out nothing.

    `methods` are of METHODS but the last; None takes all of these. 'gradient' is the mean magnitude
    of the gradient of the loss with respect to the head's mask (Michel et al. 2019); 'confidence'
    its greatest attention and 'relevance' the relevance of its output (both Voita et al. 2019);
    'removal' the increase of the loss without it. Shapley values of the loss take `permutations`; 0
    leaves them out. Gradients are made comparable between layers by `norm`, 'layer' as published,
    and may be measured under a `head_mask`.
    """
    check_whole(tuned)
    labels = labels_of(examples, tuned.config)
    methods = METHODS[:-1] if methods is None else methods
    if SHAPLEY in methods:
        raise ValueError('Shapley values are no method: permutations=20 asks for them.')
    check_names('methods', methods, METHODS[:-1])
    check_name('norm', norm, NORMS)
    if permutations:
        check_permutations(permutations)
    if head_mask is not None and set(methods) != {GRADIENT}:
        raise ValueError(f'A head mask is for methods=({GRADIENT!r},) alone.')

    def batches(what: str, memory: int = 1):
        encoded = tokenize(tuned.tokenizer, examples, max_length=compute.max_length)
        tokens = max(compute.tokens_per_batch // memory, 1)
        encoding: Encoding = {**compute.encoding, 'tokens_per_batch': tokens}
        labelled = [with_labels(batch, labels) for batch in bucket(encoded, **encoding)]
        return progress(labelled, what, size=operator.attrgetter('size'))

    kept = {'keep_values': True, 'mesh': compute.mesh}
    parts = {}
    for method in methods:
        if method == GRADIENT:
            shown = batches('Gradients of the mask', _MEMORY)
            found = head_importance(tuned, shown, task_loss, head_mask=head_mask, **kept).values
        elif method == CONFIDENCE:
            tables = stream((tuned,), batches('Confidence'), {CONFIDENCE: confidence}, **kept)
            found = tables[CONFIDENCE].values
        elif method == RELEVANCE:
            found = head_relevance(tuned, batches('Relevance', _MEMORY), **kept).values
        else:
            masks = single_heads(tuned.config)
            how = {'baseline': 'zero', 'compute': compute}
            swept = sweep_examples(tuned, examples, with_intact(masks), **how)
            losses = losses_of(swept.logits, labels)
            found = (losses[1:] - losses[0]).T.reshape(-1, *masks.shape[1:])
        parts[method] = found
    if permutations:
        parts[SHAPLEY] = shapley_values(
            tuned, examples, labels, permutations=permutations, seed=seed, compute=compute
        ).of_pairs
    return HeadScores(parts, norm, len(examples))
