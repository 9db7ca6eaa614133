"""Three hypotheses about fine-tunings of a model (docs/hypotheses.md).

    python -m studies.tuned_hypotheses all-MiniLM-L6-v2 GLUE 5e-5 125 1000

It takes half an hour on two cores, for five seeds on 125 and five on 1,000 texts of SST-2, and
prints MiniLM's column: .30 (.25 to .35), 1.00, and .00 (-.02 to .02), which is undecided.

The first was chosen on MiniLM and gte-small; the others were stated before any measurement. Seeds
and texts are both samples. From five seeds on, flips of their signs have to agree with Student's t.

Shapes: S seeds, M heads in a row, N heads of the first layer, E examples, C classes.
"""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas
import scipy.stats

import bert_secrets_jax as bs
from studies.hypotheses import ENTROPY, FEWEST, LEVEL, ROUNDING, SPECIAL, Hypothesis, row

GROUPS, FEWEST_SEEDS, FEWEST_FOR_ANY, FLIPS = 20, 3, 5, 4096  # groups of texts in the jackknife
PREDICTED = Hypothesis('Special tokens predict what heads do: rank correlation', '>', 0.15)
STAY_BROAD = Hypothesis('Broad heads of layer 1 stay broad: rank correlation', '>', 0.5)
MORE_LABELS = Hypothesis('Fine-tunings agree more with more labels: gain', '>', 0)


class Measured(NamedTuple):
    """The measurements of fine-tunings, of the heads of all layers and of the first one."""

    moved: Mapping[int, np.ndarray]  # [S, M, E] how far answers move, by the number of labels
    given: np.ndarray  # [E, M] the share of what a head moves that came from special tokens, before
    before: np.ndarray  # [E, N] entropies
    after: np.ndarray  # [S, E, N] the same after fine-tuning on most labels


def measured(model, tuned, texts):
    """Measure the model and its fine-tunings; ValueError unless seeds and shapes fit."""
    if len({each.seeds for each in tuned.values()}) > 1:
        raise ValueError('All fine-tunings need the same seeds.')
    for count, each in tuned.items():
        shapes = {(m.config.num_hidden_layers, m.config.num_attention_heads) for m in each.models}
        if len(each.models) < FEWEST_SEEDS or shapes != {bs.masks.none(model.config).shape[1:]}:
            raise ValueError(f'tuned[{count}] needs {FEWEST_SEEDS} seeds or more of this model.')

    def values(model, name, **how):
        batches = bs.encode(model.tokenizer, texts)
        return bs.collect(model, batches, [name], keep_values=True, **how)[name].values

    return Measured(
        {n: np.stack([answers_moved(m, texts) for m in each.models]) for n, each in tuned.items()},
        values(model, SPECIAL, maps_of=bs.shares_of_norms).reshape(len(texts), -1),
        values(model, ENTROPY)[:, 0],
        np.stack([values(each, ENTROPY)[:, 0] for each in tuned[max(tuned)].models]),
    )


def answers_moved(model, texts):
    """Return how far the answer to each text moves where a head has even attention [M, E].

    That is the root mean square over classes of the change of the logits, which are centred first.
    """
    masks = bs.masks.with_intact(bs.masks.single_heads(model.config))
    logits = np.asarray(bs.sweep_examples(model, texts, masks).logits, np.float64)  # [M + 1, E, C]
    if logits.shape[-1] > 1:
        logits -= logits.mean(axis=-1, keepdims=True)
    if np.ptp(logits[0], axis=0).max() <= ROUNDING * np.abs(logits[0]).max():
        raise ValueError('The answers of a fine-tuning are all alike: it has learnt nothing.')
    return np.sqrt(((logits[1:] - logits[0]) ** 2).mean(axis=-1))


def decided(found):
    """Return a row for each hypothesis: two, or three with two numbers of labels."""
    fewest, most = found.moved[min(found.moved)], found.moved[max(found.moved)]

    def predicted(kept):
        return ranks(found.given[kept].mean(axis=0)[None], most[..., kept].mean(axis=-1))[0]

    def broad(kept):
        return ranks(found.before[kept].mean(axis=0)[None], found.after[:, kept].mean(axis=1))[0]

    def more(kept):
        return np.subtract(*(agreements(each[..., kept].mean(axis=-1)) for each in (most, fewest)))

    numbers = {PREDICTED: (predicted, 1), STAY_BROAD: (broad, 1)}
    if len(found.moved) > 1:
        numbers[MORE_LABELS] = more, 2  # a difference of two correlations
    return [tested(each, *number, len(found.before)) for each, number in numbers.items()]


def tested(hypothesis, number, limit, examples):
    """Return the row of a number by seed, whose error from texts is that of a jackknife."""
    groups = np.arange(examples) % min(GROUPS, examples)
    seeds = number(np.arange(examples)) - hypothesis.threshold
    without = [number(np.flatnonzero(groups != out)).mean() for out in np.unique(groups)]
    of_texts = (np.sqrt((len(without) - 1) * np.var(without)) + ROUNDING) ** 2
    of_seeds = seeds.var(ddof=1) / len(seeds)
    # Satterthwaite's degrees of freedom, from the spread of seeds and the error of texts.
    freedom = of_seeds**2 / (len(seeds) - 1) + of_texts**2 / max(examples - 1, 1)
    student = scipy.stats.t((of_seeds + of_texts) ** 2 / freedom)
    mean, error = seeds.mean(), np.sqrt(of_seeds + of_texts)
    p_values = [student.sf(mean / error), student.cdf(mean / error)]
    if len(seeds) >= FEWEST_FOR_ANY:
        how = {'alternative': 'greater', 'rounds': FLIPS}
        flips = [bs.significance.sign_flip_test(each[None], **how)[1] for each in (seeds, -seeds)]
        p_values = np.maximum(p_values, np.ravel(flips))
    reach = np.array([0, -1, 1]) * student.isf(LEVEL / 2) * error
    interval = np.clip(mean + hypothesis.threshold + reach, -limit, limit)
    return row(hypothesis, interval, p_values if examples >= FEWEST else [np.nan] * 2, examples)


def ranks(one, other):
    """Return the rank correlations of each row with each other one; 0 where one is constant."""
    count, rows = len(one), scipy.stats.rankdata([*one, *other], axis=1)
    with np.errstate(invalid='ignore', divide='ignore'):
        return np.nan_to_num(np.corrcoef(rows)[:count, count:])


def agreements(effects):
    """Return the part of each seed in the mean rank correlation of two seeds (pseudo-values)."""
    pairs, count = ranks(effects, effects), len(effects)
    np.fill_diagonal(pairs, 0)
    mean = pairs.sum() / (count * (count - 1))
    without = (pairs.sum() - 2 * pairs.sum(axis=1)) / ((count - 1) * (count - 2))
    return count * mean - (count - 1) * without


def main(name='all-MiniLM-L6-v2', glue_dir='GLUE', rate='5e-5', *labels):
    pretrained, rng = bs.from_pretrained(name), np.random.default_rng(0)
    train, dev = (
        [texts[place] for place in rng.permutation(len(texts))[:count]]
        for split, count in (('train', 1000), ('dev', 200))
        for texts in [bs.read_glue(glue_dir, 'SST-2', split)]
    )
    how = {'seeds': 5, 'batch_size': 16, 'learning_rate': float(rate)}
    tuned = {
        n: bs.finetune(pretrained, train[:n], dev, **how)
        for n in map(int, labels or ('125', '1000'))
    }
    if not all(each.learnt for each in tuned.values()):
        print('A fine-tuning has not learnt its task: what is found in it describes noise.')
    found = pandas.DataFrame(decided(measured(pretrained, tuned, dev)))
    print(found.to_string(index=False, float_format='{:.3g}'.format))


if __name__ == '__main__':
    main(*sys.argv[1:])
