"""Agreement of fine-tunings about heads, with MRPC's labels and with shuffled ones.

    python docs/shuffled_labels.py --glue_dir=GLUE

Every model is trained on the same pairs. Shuffled labels are shuffled anew for each model, so that
nothing in them can be learnt. The seeds differ, so that no two models begin with one classifier.
It prints the accuracy of each model, and the rank correlations of what heads do to the answers.
"""

import dataclasses

import numpy as np
from absl import app, flags

import bert_secrets_jax as bs

_GLUE_DIR = flags.DEFINE_string('glue_dir', None, 'The folder of GLUE.', required=True)
_MODEL = flags.DEFINE_string('model', 'all-MiniLM-L6-v2', 'The model to fine-tune.')
_SEEDS = flags.DEFINE_integer('seeds', 3, 'Fine-tunings with each kind of labels.', 1)
_TRAIN = flags.DEFINE_integer('train', 500, 'Training pairs.', 2)
_DEV = flags.DEFINE_integer('dev', 80, 'Dev pairs, on which heads are disabled.', 2)
_EPOCHS = flags.DEFINE_integer('epochs', 2, 'Passes over the training pairs.', 1)

TRUE, SHUFFLED = 'true', 'shuffled'


def shuffled(examples, seed):
    """Return the examples with their labels in a random order."""
    labels = np.random.default_rng(seed).permutation([each.label for each in examples])
    return [
        dataclasses.replace(each, label=int(label))
        for each, label in zip(examples, labels, strict=True)
    ]


def correlations(by_seed, outcome):
    """Return the rank correlation of the effects of every two seeds."""
    of_outcome = by_seed[by_seed['outcome'] == outcome]
    return of_outcome.pivot(index='disabled', columns='seed', values='change').corr('spearman')


def main(argv):
    del argv
    train, dev = (bs.read_glue(_GLUE_DIR.value, 'MRPC', split) for split in ('train', 'dev'))
    train, dev = bs.draw(train, _TRAIN.value, seed=0), bs.draw(dev, _DEV.value, seed=0)
    base, how = bs.from_pretrained(_MODEL.value), {'epochs': _EPOCHS.value, 'learning_rate': 1e-4}
    models, kinds = [], [TRUE] * _SEEDS.value + [SHUFFLED] * _SEEDS.value
    for seed, kind in enumerate(kinds):
        learnt = train if kind == TRUE else shuffled(train, seed)
        models += bs.finetune(base, learnt, dev, seeds=[seed], **how).models
    result = bs.analyses.ablation_over_seeds(models, dev)
    frames = result.frames()
    by_seed = frames['heads_by_seed']
    first = by_seed['disabled'] == by_seed['disabled'].iloc[0]
    scores = by_seed[first & (by_seed['outcome'] == 'accuracy')]['intact']
    print(
        'accuracy:',
        ', '.join(f'{kind} {score:.1f}' for kind, score in zip(kinds, scores, strict=True)),
    )
    found = correlations(by_seed, 'answers').to_numpy()
    for one, other in ((TRUE, TRUE), (SHUFFLED, SHUFFLED), (TRUE, SHUFFLED)):
        values = [
            found[row, column]
            for row, column in zip(*np.triu_indices(len(kinds), 1), strict=True)
            if (kinds[row], kinds[column]) == (one, other)
        ]
        print(f'{one} with {other}: {min(values):.2f} to {max(values):.2f}')


if __name__ == '__main__':
    app.run(main)
