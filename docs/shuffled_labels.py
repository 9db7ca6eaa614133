"""Agreement of fine-tunings about heads, with MRPC's labels and with shuffled ones.

    python docs/shuffled_labels.py --glue_dir=GLUE

Every model is trained on the same pairs. Shuffled labels are shuffled anew for each model, so that
nothing in them can be learnt. The seeds differ, so that no two models begin with one classifier.
It prints the accuracy of each model, and the rank correlations of what heads do to the answers.
"""

import argparse
import dataclasses

import numpy as np

import bert_secrets_jax as bs

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--glue_dir', required=True, help='The folder of GLUE.')
    parser.add_argument('--model', default='all-MiniLM-L6-v2', help='The model to fine-tune.')
    parser.add_argument('--seeds', type=int, default=3, help='Models with each kind of labels.')
    parser.add_argument('--train', type=int, default=500, help='Training pairs.')
    parser.add_argument('--dev', type=int, default=80, help='Dev pairs for disabling heads.')
    parser.add_argument('--epochs', type=int, default=2, help='Passes over the training pairs.')
    given = parser.parse_args()
    train, dev = (bs.read_glue(given.glue_dir, 'MRPC', split) for split in ('train', 'dev'))
    train, dev = bs.draw(train, given.train, seed=0), bs.draw(dev, given.dev, seed=0)
    base, how = bs.from_pretrained(given.model), {'epochs': given.epochs, 'learning_rate': 1e-4}
    models, kinds = [], [TRUE] * given.seeds + [SHUFFLED] * given.seeds
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
    main()
