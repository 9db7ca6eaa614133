"""Which heads help, hurt or do not matter, jointly: causal head gating (Nam et al. 2025).

Each head has a gate (`pruning.gates`). All are trained twice from the same start, with the same
examples and the same random numbers: once an open gate costs its price, once it earns as much. A
facilitating head is open both times, an interfering head closed both times, and an irrelevant one
follows the price. So an effect matters from about the price on, with the other heads as they are
then, where a sweep removes one head from a model that has all others.

Differs from the paper: gates are those of Voita et al. 2019, random while they are learnt, and the
price is on the probability of being open, not on its logit. Both trainings start with all gates
nearly open, not where a training without a price ends.

Shapes: S seeds, L layers, N heads, M masks, E examples.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Real, Shaped

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.masks import describe, single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.common import effects, inputs
from bert_secrets_jax.analyses.common.tables import grids_frame
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.losses import losses_of
from bert_secrets_jax.finetune.metrics import metrics_for
from bert_secrets_jax.finetune.train import Finetuned
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.pruning.gates import GateConfig, rounded_gates, train_gates
from bert_secrets_jax.ranges import Positive
from bert_secrets_jax.runs.result import Result, framed, how_many
from bert_secrets_jax.stats.agreement import agreement, reliability
from bert_secrets_jax.stats.correlations import rank_agreement
from bert_secrets_jax.stats.effects import Effects

SOURCE = 'Nam et al. 2025, section 3'
ROLES = FACILITATING, INTERFERING, IRRELEVANT = 'facilitating', 'interfering', 'irrelevant'
UNDECIDED = 'undecided'
_SAID = (
    '{estimate} {unit} {estimate:|helps|help}, {interfering:hurts|hurt}, {irrelevant:does|do} not '
    'matter, {undecided:is|are} undecided.'
)
_ALL_THAT_HURT = 'loss without all interfering heads'
_TOGETHER = (
    'Removing {count:interfering head|interfering heads} at once changes the loss by '
    '{estimate:+.2g} {unit} ({low:.2g} to {high:.2g}).'
)


class HeadGating(Result):
    """The gates of every head under a price and under a reward, and what removing heads does.

    Attributes:
      seeds: [S] The seed of each training.
      priced, paid: [S, L, N] The gates at the end where open heads cost, and where they are paid.
      alone: The effect of removing each head on the loss of texts that no gate was learnt from.
      together: The effect of removing all heads of a role at once on the same texts; None if no
        head has a role.
      learnt: The test of whether the model has learnt anything (see `analyses.common.inputs`).
    """

    title = 'Heads that help and hurt, by gates'

    seeds: Real[np.ndarray, ' S']
    priced: Float[np.ndarray, 'S L N']
    paid: Float[np.ndarray, 'S L N']
    alone: Effects
    together: Effects | None
    learnt: inputs.Learnt

    @property
    def roles(self) -> Shaped[np.ndarray, 'L N']:
        """The role of each head."""
        return roles_of(self.priced, self.paid)

    def _draw_gates(self):
        titles = {'open heads cost': 'gate_priced', 'open heads are paid': 'gate_paid'}
        heads, shape = self.labelled['heads'].columns, self.priced.shape[1:]
        return plots.head_grids(
            {title: heads[name].reshape(shape) for title, name in titles.items()},
            label='gate, mean of seeds',
            limits=(0.0, 1.0),
        ).captioned(
            'Gates of heads: open in both, a head helps; closed in both, it hurts.',
            {title: plots.Source('heads', name) for title, name in titles.items()},
        )

    def findings(self):
        roles, together = self.roles, self.together
        counts = {role: int((roles == role).sum()) for role in (*ROLES, UNDECIDED)}
        fields = {'sample': len(self.seeds), 'sample_of': 'seeds', 'source': SOURCE}
        helps = roles == FACILITATING
        found = [
            *inputs.if_not_learnt('the model', self.learnt, self.alone.sample),
            how_many('facilitating heads', helps, template=_SAID, numbers=counts, **fields),
            effects.count_of(self.alone, 'heads', source=SOURCE),
        ]
        if together is not None and counts[INTERFERING]:
            fields = {'source': SOURCE, 'template': _TOGETHER, 'count': counts[INTERFERING]}
            fields['name'], index = _ALL_THAT_HURT, [*together.names].index(INTERFERING)
            found.append(effects.effect_of(together, index, **fields))
        return found

    def notes(self):
        return [
            'Facilitating heads are open even where this costs, interfering ones closed even where '
            'it is paid, irrelevant ones open only where it is paid.',
            'Gates are learnt from the training texts; effects are those on other texts.',
            'A role is what more than half of the seeds say. A removed head puts out nothing.',
        ]


def roles_of(
    priced: Float[np.ndarray, 'S L N'], paid: Float[np.ndarray, 'S L N']
) -> Shaped[np.ndarray, 'L N']:
    """Return the role that more than half of the seeds give each head, or else 'undecided'."""
    costs, earns = rounded_gates(priced) > 0, rounded_gates(paid) > 0
    # One that is open only where this costs has none.
    in_seeds = costs & earns, ~costs & ~earns, ~costs & earns
    return np.select([each.mean(axis=0) > 0.5 for each in in_seeds], ROLES, UNDECIDED)


# The settings `train` that a training of gates alone has, too.
_OF_TRAINING = ('batch_size', 'micro_batch', 'warmup', 'clip', 'optimizer')


def _cost(given) -> float:
    runs = 2 * given['head_gating.num_seeds']
    share = given.share('train', given['head_gating.max_examples'])
    learnt = given.TRAINED * runs * given['head_gating.epochs'] * share * given.tokens('train')
    return learnt + (given.HEAD * given.heads + 2 * runs) * given.tokens('ablated')


@analysis(
    question='heads that help, hurt or do not matter, by gates trained twice',
    group='What matters',
    report='name',
    settings={
        'max_examples': {
            'help': 'Training examples that its gates are learnt from; 0 is all.',
            'default': 200,
            'range': [0, 10_000_000],
            'smoke': 8,
        },
        'num_seeds': {
            'help': 'Seeds are seed, seed + 1, ... Each trains all gates twice.',
            'default': 3,
            'range': [1, 1000],
            'smoke': 2,
        },
        'epochs': {'default': 20, 'range': [1, 10_000], 'smoke': 1},
    },
    reads=(
        'head_gating.',
        'gates.price',
        'gates.learning_rate',
        'ablation.checkpoint',
        'ablation.max_examples',
    ),
    inputs={
        'tuned': 'model',
        'train': lambda given: given.drawn('train', 'head_gating.max_examples'),
        'dev': 'ablated',
        'price': 'gates.price',
        'seeds': lambda given: given.seeds('head_gating.num_seeds'),
        'gate_learning_rate': 'gates.learning_rate',
        **{name: f'train.{name}' for name in _OF_TRAINING},
    },
    needs=('model', 'train'),
    like=GateConfig,
    cost=_cost,
)
def head_gating(
    tuned: Pretrained | Finetuned,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    price: Positive = 0.01,
    seeds: int | Sequence[int] = 5,
    epochs: int = 20,
    seed: int = 0,
    compute: Compute = Compute(),
    **training: Any,
) -> HeadGating:
    """Call heads facilitating, interfering or irrelevant by gates that are trained twice.

    Args:
      tuned: A model with a classifier, fine-tuned on the task. Of several, the first is used.
      train: The labelled texts that the gates are learnt from.
      dev: Other labelled texts, on which heads are removed. On the same texts, heads that were
        chosen for their effect would seem to have one.
      price: The price of an open head, in nats of the loss of an example, above 0.
      seeds: The seeds of the training of gates, or their number.
      epochs: The number of passes over `train`, in each of two trainings for each seed.
      seed: The seed of the bootstrap.
      compute: As in `ablation`.
      **training: Further settings of `bs.train_gates`, such as `gate_learning_rate`.

    Raises:
      TypeError: An argument is something else.
      ValueError: An argument is unknown, an example has no label, the model has no classifier, or
        `bs.train_gates` refuses a setting.
    """
    model = inputs.one_model(tuned)
    labels, classes = inputs.labels_of(dev, model.config), model.config.num_labels
    inputs.check_several(dev)
    part = compute.part('gates')
    length = part.max_length or model.config.max_length
    training |= {'max_length': length, 'folder': part.folder, 'mesh': part.mesh}
    found = train_gates(
        model, train, dev, coefficients=(price, -price), seeds=seeds, epochs=epochs, **training
    )
    priced, paid = found.gates.astype(np.float64).reshape(2, -1, *found.gates.shape[1:])
    roles, gates = roles_of(priced, paid), (priced + paid) / 2
    given = [role for role in ROLES if (roles == role).any()]
    single = with_intact(single_heads(model.config))
    masks = np.concatenate([single, *((roles != role)[None].astype(np.float32) for role in given)])
    swept = sweep_examples(model, dev, masks, baseline='zero', compute=compute)
    losses, count = losses_of(swept.logits, labels), len(single)
    assess = functools.partial(effects.loss_effects, classes=classes, seed=seed)
    increase = (losses[1:count] - losses[0]).T.reshape(-1, *roles.shape)
    metrics = metrics_for(classes, dev)
    result = HeadGating(
        seeds=found.seeds[: len(priced)],
        priced=priced,
        paid=paid,
        alone=assess(losses[:count], [describe(mask) for mask in single[1:]]),
        together=assess(np.delete(losses, range(1, count), axis=0), given) if given else None,
        learnt=inputs.learning_test(metrics, classes, swept.predictions[0], labels),
    )
    again = reliability(increase, seed=seed)
    of_seeds = dataclasses.astuple(agreement(gates.reshape(len(gates), -1)))
    correlations = framed(
        ('of', 'rank_correlation', 'low', 'high'),
        [
            (
                'mean gate and increase of the loss',
                *dataclasses.astuple(rank_agreement(gates, increase, paired=False)),
            ),
            ('increase of the loss, and that on other texts', again, np.nan, np.nan),
            ('gates of two seeds', *of_seeds[:3]),
        ],
        'Rank correlations over heads.',
    )
    return _labelled(result).with_frames({'agreement': correlations})


def _labelled(found: HeadGating) -> HeadGating:
    """Return the result with its tables: heads, the gates of each seed, and heads of a role."""
    heads = effects.frame_of(
        {'': found.alone},
        effects.TESTED,
        'Mean gates of each head over seeds, its role, and the change of the loss '
        f'({found.alone.outcome.unit}) without it.',
    )
    trained = {'gate_priced': found.priced, 'gate_paid': found.paid}
    grids = {name: each.mean(axis=0) for name, each in trained.items()}
    grids |= {'gate': (found.priced + found.paid).mean(axis=0) / 2, 'role': found.roles}
    learnt = not inputs.learnt_nothing(found.learnt[-1])
    heads = heads.assign(**{k: v.ravel() for k, v in grids.items()}, learnt=learnt)
    colours = heads.attrs['colours']
    columns = {**dict.fromkeys(grids, ()), **colours.columns}
    heads.attrs['colours'] = dataclasses.replace(colours, columns=columns)
    by = {'seed': found.seeds}
    frames = {'heads': heads, 'seeds': grids_frame(trained, 'The gates of each seed.', by=by)}
    if found.together is not None:
        caption = 'The change of the loss without all heads of a role.'
        frames['together'] = effects.frame_of({'': found.together}, effects.TESTED, caption)
    return found.with_frames(frames)
