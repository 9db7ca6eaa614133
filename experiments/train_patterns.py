"""Train and judge the classifier of patterns (the paper, section 4.1).

    python -m experiments.train_patterns --config=configs/quickstart.py --workdir=results/patterns

Cross-validates, then trains on all maps and writes `classifier.safetensors`. Learns from the maps
that ship, or from yours: `--config.patterns.annotated=` a folder that `experiments.annotate` wrote.
The report shows it with `--config.patterns.classifier=` that file.
"""

import csv
import dataclasses
import hashlib
import pathlib

import numpy as np
from absl import logging

from bert_secrets_jax.patterns import train
from bert_secrets_jax.patterns.classifier import save_classifier
from bert_secrets_jax.patterns.cnn import CLASSES, TITLES
from bert_secrets_jax.patterns.sample import (
    ANNOTATED,
    LABELS_FILE,
    MAPS_FILE,
    read_annotated,
)
from bert_secrets_jax.report import figures, tables
from bert_secrets_jax.workdir import remember_input
from experiments.study import Study, launch


def main(study: Study) -> None:
    """Cross-validate, train, and write classifier and tables."""
    config = study.config.patterns
    directory = pathlib.Path(config.annotated or ANNOTATED)
    maps, labels = read_annotated(directory)
    content = (directory / MAPS_FILE).read_bytes() + (directory / LABELS_FILE).read_bytes()
    remember_input(study.workdir, 'labelled maps', hashlib.sha256(content).hexdigest())
    settings = train.TrainConfig(
        epochs=config.epochs,
        side=config.side,
        longest=config.longest or None,
        seed=study.config.seed,
    )
    found = {}
    for name, guess in train.MODELS.items():
        file = study.workdir / f'predictions_{name.replace(" ", "_")}.csv'
        if not file.exists():
            logging.info('Cross-validating: %s', name)
            predicted = train.cross_validate(guess, maps, labels, settings, folds=config.folds)
            rows = zip(maps.example, labels, predicted, strict=True)
            tables.write_csv(file, ('example', 'label', 'prediction'), rows)
        with file.open(newline='') as stored:
            found[name] = np.array([int(row['prediction']) for row in csv.DictReader(stored)])
    scores = {name: train.score(labels, of, maps.text) for name, of in found.items()}
    tables.write_csv(
        study.workdir / 'scores.csv',
        ('model', 'macro_f1', 'macro_low', 'macro_high', 'weighted_f1', 'weighted_low',
         'weighted_high', 'accuracy', *(f'f1_{name}' for name in CLASSES)),
        (
            (name, of.macro_f1, *of.macro_interval, of.weighted_f1, *of.weighted_interval,
             of.accuracy, *of.f1)
            for name, of in scores.items()
        ),
    )  # fmt: skip
    confusion = train.confusion(labels, found['CNN'])
    tables.write_csv(
        study.workdir / 'confusion.csv',
        ('label', *CLASSES),
        ((name, *row) for name, row in zip(CLASSES, confusion, strict=True)),
    )
    # Those that no model takes for another class show best what the classes are.
    clear = np.all([found[name] == labels for name in ('CNN', 'hand-made features')], axis=0)
    panels = {
        title: [
            (maps.source[number], maps.values[number].astype(np.float32))
            for number in np.flatnonzero(clear & (labels == index))[:2]
        ]
        for index, title in enumerate(TITLES)
    }
    figures.save(figures.class_examples(panels), study.workdir / 'figures', 'classes')
    for name, of in scores.items():
        print(
            f'{name:>20}: macro F1 {of.macro_f1:.3f} ({of.macro_interval[0]:.3f} to '
            f'{of.macro_interval[1]:.3f}), weighted {of.weighted_f1:.3f}, '
            f'accuracy {of.accuracy:.3f}'
        )
    path = study.workdir / 'classifier.safetensors'
    if not path.exists():
        logging.info('Training on all %d maps', len(maps))
        classifier = train.fit(maps, labels, settings)
        save_classifier(path, dataclasses.replace(classifier, confusion=confusion))
    print(f'Classifier: {path.resolve()}')


if __name__ == '__main__':
    launch(main)
