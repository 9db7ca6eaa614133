"""Ten hypotheses about heads that a new model can refute (docs/hypotheses.md).

    python -m studies.hypotheses all-MiniLM-L6-v2 GLUE

It takes a minute on two cores, and prints the row of MiniLM in the document: .98, .61, .34, .10,
.29, .23, 1.15, .35, 2.5 and -.24; all hold. Without GLUE, texts are those of the package.

Each number is made from means over texts, and its error is that of the jackknife. That the
greatest head is on one side needs one that is above each head of the other side. It is corrected
for the heads of its side that may be the greatest.

Shapes: E examples, L layers, N heads, A and B heads of two sides in a row.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas
import scipy.stats

import bert_secrets_jax as bs

LEVEL, FEWEST, ROUNDING = 0.05, 20, 1e-6  # of tests; of texts; of means in float32
CLEAR = LEVEL / 100  # at this level for all of its side, a head is not the greatest of it
BEFORE, AFTER, SPECIAL = 'previous token', 'next token', '[CLS] and all [SEP]'
ENTROPY, OF_CLS, STOPS = 'entropy (nats)', 'entropy of [CLS] (nats)', 'period or comma'
MOVED = 'moved from special tokens'


class Hypothesis(NamedTuple):
    """A claim that a number is more or less ('>', '<') than a threshold, and how it is made."""

    text: str
    side: str
    threshold: float
    names: tuple[str, ...] = ()
    # From values [E, L, N]: differences and errors [A, B], and how many may be a side's greatest.
    compared: Callable | None = None


def thirds(grid):
    first = round(len(grid) / 3)
    return np.split(grid, [first, len(grid) - first])


def number(of):
    """Return how a number made from means decides: as one head would against 0."""

    def compared(*values):
        count, totals = len(values[0]), [each.sum(axis=0, dtype=np.float64) for each in values]
        without = [(total - each) / (count - 1) for total, each in zip(totals, values, strict=True)]
        spread = np.var([of(*means) for means in zip(*without, strict=True)])
        whole, error = of(*(total / count for total in totals)), np.sqrt((count - 1) * spread)
        return np.array([[whole]]), np.array([[error + ROUNDING]]), (1, 1)

    return compared


def lead(layers=None, others=True):
    """Return how the first layers, or the first third, are compared with all others, or with 0."""

    def compared(values):
        end = len(thirds(values[0])[0]) if layers is None else layers
        rest = values[:, end:] if others else np.zeros((len(values), 1, 1))
        sides = [part.reshape(len(values), -1) for part in (values[:, :end], rest)]
        heads, first = np.hstack(sides).astype(np.float64), sides[0].shape[1]
        covariance = np.cov(heads, rowvar=False)
        differences = heads.mean(axis=0)[:, None] - heads.mean(axis=0)
        squared = covariance.diagonal()[:, None] + covariance.diagonal() - 2 * covariance
        errors = np.sqrt(np.maximum(squared, 0) / len(values)) + ROUNDING
        best = []
        for side in (slice(first), slice(first, None)):
            above = (differences / errors)[side, side].max(axis=0)
            clear = scipy.stats.t.isf(CLEAR / len(above), len(values) - 1)
            best.append(int((above < clear).sum()))
        return differences[:first, first:], errors[:first, first:], best

    return compared


HYPOTHESES = [
    Hypothesis('Layer 1 has a head for the previous token', '>', 0.5, (BEFORE,), lead(1, False)),
    Hypothesis('The first third has the head for the previous token', '>', 0, (BEFORE,), lead()),
    Hypothesis('The first third has the head for the next token', '>', 0, (AFTER,), lead()),
    Hypothesis('Early layers look at neighbours, late ones less', '>', 0.05, (BEFORE, AFTER),
               number(lambda *both: thirds(sum(both))[0].mean() - thirds(sum(both))[2].mean())),
    Hypothesis('Middle layers look at special tokens, layer 1 less', '>', 0.15, (SPECIAL,),
               number(lambda special: thirds(special)[1].mean() - special[0].mean())),
    Hypothesis('Special tokens give little: moved / attention', '<', 0.5, (MOVED, SPECIAL),
               number(lambda moved, special: moved.mean() / special.mean())),
    Hypothesis('Layer 1 is broader than layer 2 (nats)', '>', 0.5, (ENTROPY,),
               number(lambda nats: nats[0].mean() - nats[1].mean())),
    Hypothesis('The broadest head is in layer 1 (nats)', '>', 0, (ENTROPY,), lead(1)),
    Hypothesis('[CLS] gathers widely in the last layer, layer 2 less (nats)', '>', 1, (OF_CLS,),
               number(lambda nats: nats[-1].mean() - nats[1].mean())),
    Hypothesis('Heads for full stops come after the first third', '<', 0, (STOPS,), lead()),
]  # fmt: skip


def decided(hypothesis, values):
    """Return the row of a hypothesis from values [E, L, N] by name; texts with NaN do not count."""
    values = [values[name] for name in hypothesis.names]
    known = np.all([np.isfinite(each).all(axis=(1, 2)) for each in values], axis=0)
    if known.sum() < FEWEST:
        return row(hypothesis, (np.nan,) * 3, (np.nan, np.nan), known.sum())
    differences, errors, best = hypothesis.compared(*(each[known] for each in values))
    student = scipy.stats.t(known.sum() - 1)
    beyond = (differences - hypothesis.threshold) / errors
    # One head of a side has to be beyond each of the other side (intersection-union test).
    above = best[0] * student.sf(beyond).min(axis=0).max()
    below = best[1] * student.cdf(beyond).min(axis=1).max()
    first, second = (student.isf(LEVEL / 2 / heads) * errors for heads in best)
    ends = (differences - first).max(axis=0).min(), (differences + second).min(axis=1).max()
    return row(hypothesis, (differences.min(axis=1).max(), *ends), (above, below), known.sum())


def row(hypothesis, interval, p_values, sample):
    """Return a row from p-values of "no more" and of "no less"; NaN is not decidable."""
    false, true = np.minimum(p_values, 1)[:: 1 if hypothesis.side == '>' else -1]
    words = {'holds': false <= LEVEL, 'does not hold': true <= LEVEL, 'too few': np.isnan(false)}
    return {
        'hypothesis': hypothesis.text, 'needs': f'{hypothesis.side} {hypothesis.threshold:g}',
        'verdict': next((word for word, is_so in words.items() if is_so), 'undecided'),
        **dict(zip(('number', 'low', 'high'), interval, strict=True)),
        'p_if_false': false, 'p_if_true': true, 'sample': int(sample),
    }  # fmt: skip


def hypotheses(model, texts):
    """Return a frame with the verdict on each hypothesis."""
    if model.config.num_hidden_layers < 3:
        raise ValueError(f'Thirds of at least 3 layers are needed: {model.config.summary}.')
    batches = list(bs.encode(model.tokenizer, texts))
    names = [BEFORE, AFTER, SPECIAL, ENTROPY, OF_CLS, STOPS]
    found = bs.collect(model, batches, names, keep_values=True)
    moved = bs.collect(model, batches, [SPECIAL], keep_values=True, maps_of=bs.shares_of_norms)
    values = {name: each.values for name, each in (found | {MOVED: moved[SPECIAL]}).items()}
    return pandas.DataFrame([decided(each, values) for each in HYPOTHESES])


def main(name='all-MiniLM-L6-v2', glue_dir=None):
    texts = bs.read_glue(glue_dir, 'MRPC', 'dev') if glue_dir else bs.read_corpus('dev')
    found = hypotheses(bs.from_pretrained(name), texts)
    print(found.to_string(index=False, float_format='{:.3g}'.format))


if __name__ == '__main__':
    main(*sys.argv[1:])
