"""Claims about layers: which of them fine-tuning changes, and which attend to [CLS] or [SEP].

Tables of heads hold no covariances. The tests take the greatest standard deviation that a mean or a
difference can have, however heads depend on each other: they are conservative.

Where a claim has several parts, such as a difference for every pair of layers, the estimate of its
verdict is the part that is least in favour of the claim, in standard errors.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.runs import Tables, each_of, on_runs
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Runs, Verdict
from bert_secrets_jax.runs.verdict import THESE_MODELS

# A difference of mean similarity between two layers. In the paper's Figure 5 the smallest one that
# bears out its statement is 0.09 (QNLI), and the one against it 0.04 (QQP).
PRACTICAL_SIMILARITY = 0.02
# A share of attention as a mean over the heads of many layers: the paper's smallest is 0.05.
PRACTICAL_TREND = 0.02

LAST_LAYERS = Claim(
    'Fine-tuning changes the maps of the last two layers most: their similarity is lower than in '
    f'every other layer, by more than {PRACTICAL_SIMILARITY:g}.',
    'Kovaleva et al. 2019, section 4.3, Figure 5: all tasks but QQP',
    bound='Less than a quarter of the smallest difference in Figure 5, 0.09 (QNLI).',
    limits='Which layers matter to the task.',
    short='Fine-tuning changes the last two layers most',
    section='attention_change',
    unit='cosine similarity',
    threshold=PRACTICAL_SIMILARITY,
)
CLS_THEN_SEP = Claim(
    'From early to late layers, [CLS] loses attention and [SEP] gains it and leads, each by more '
    f'than {PRACTICAL_TREND:g}.',
    'Kovaleva et al. 2019, section 4.4, Figure 6: all tasks',
    bound='Less than half of the smallest change in Figure 6, 0.05 (the gain of [SEP] on QNLI).',
    limits='That it is the same attention that moves.',
    short='Early layers attend to [CLS], late ones to [SEP]',
    section='special_tokens',
    unit='share of attention',
    threshold=PRACTICAL_TREND,
)


def last_layers_change_most(
    *similarity: Runs, claim: Claim = LAST_LAYERS, under: Sequence[str] = ('',)
) -> Verdict:
    """Test LAST_LAYERS: both last layers are less similar than every other one.

    The estimate is the similarity (`statistics.cosine`) of another layer minus that of one of the
    last two, above the threshold for every such pair if the claim holds. Of several schedules, each
    with the same seeds and a name that ends a sentence (`under`), it is so for every one.
    """
    runs = [*zip(*map(verdict.as_runs, similarity), strict=True)]
    count, layers = runs[0][0].count, len(runs[0][0].mean)
    if layers < 3:
        why = 'The model has {layers:layer|layers} and no others to compare the last two with.'
        return verdict.nothing_to_test(claim, why, count, layers=layers)
    last, other = np.eye(layers)[-2:], np.eye(layers)[:-2]
    weights = (other[None] - last[:, None]).reshape(-1, layers)
    tables = [np.concatenate([verdict.by_layer(each) for each in run], axis=1) for run in runs]
    weights = np.kron(np.eye(len(similarity)), weights)
    pairs = [verdict.combined(weights, *table) for table in tables]
    found = verdict.contrasts(pairs, count, above=PRACTICAL_SIMILARITY)
    schedule, pair = divmod(found.least, 2 * (layers - 2))
    which, against = layers - 1 + pair // (layers - 2), 1 + pair % (layers - 2)
    what = f'similarity of layer {against} minus that of layer {which}{under[schedule]}'
    # A single fine-tuning under each schedule does not speak for the schedules.
    alone = {'population': THESE_MODELS} if under[0] and len(runs) == 1 else {}
    return verdict.verdict_on(claim, found, what, **alone)


def cls_then_sep(runs: Mapping[str, Tables]) -> list[Verdict]:
    """Return the verdict on CLS_THEN_SEP from tables of [CLS] and [SEP]; none on no runs."""
    return on_runs(
        runs,
        lambda tables: attention_moves_from_cls_to_sep(
            each_of(tables, '[CLS]'), each_of(tables, '[SEP]')
        ),
    )


def attention_moves_from_cls_to_sep(cls: Runs, sep: Runs) -> Verdict:
    """Test CLS_THEN_SEP from the first half of the layers to the second.

    With an odd number of layers the middle one is in neither half. The estimate is one of three
    parts, all above the threshold if the claim holds.
    """
    runs = list(zip(verdict.as_runs(cls), verdict.as_runs(sep), strict=True))
    count, layers = runs[0][0].count, len(runs[0][0].mean)
    half = layers // 2
    if not half:
        return verdict.nothing_to_test(CLS_THEN_SEP, 'The model has a single layer.', count)
    early, late = np.zeros(layers), np.zeros(layers)
    early[:half], late[-half:] = 1 / half, 1 / half
    # Weights of the layers of [CLS], then of those of [SEP].
    none = np.zeros(layers)
    weights = np.block([[early - late, none], [none, late - early], [-late, late]])
    tables = [np.concatenate([verdict.by_layer(each) for each in run], axis=1) for run in runs]
    parts = [verdict.combined(weights, *table) for table in tables]
    found = verdict.contrasts(parts, count, above=PRACTICAL_TREND)
    names = (
        'attention that [CLS] loses from early to late layers',
        'attention that [SEP] gains from early to late layers',
        'attention to [SEP] minus that to [CLS] in late layers',
    )
    return verdict.verdict_on(CLS_THEN_SEP, found, names[found.least])
