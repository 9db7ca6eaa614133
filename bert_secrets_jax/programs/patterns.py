"""Labelling maps by eye, and training the classifier of patterns on them (section 4.1)."""

import dataclasses
import pathlib

import numpy as np
from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.files import read_record, write_atomically, write_csv, write_record
from bert_secrets_jax.patterns import page
from bert_secrets_jax.patterns import train as training
from bert_secrets_jax.patterns.classifier import load_classifier, save_classifier
from bert_secrets_jax.patterns.cnn import CLASSES, TITLES
from bert_secrets_jax.patterns.sample import (
    ANNOTATED,
    LABELS_FILE,
    MAPS_FILE,
    MapSample,
    draw_maps,
    read_annotated,
    read_maps,
    write_maps,
)
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.run import digest


def annotate(study: Study, *, shipped: bool = False, port: int = 0) -> None:
    """Serve the page on which maps are labelled, until it is stopped.

    Args:
      study: The study, whose model and texts the maps are drawn from. The setting `patterns.count`
        is the number of maps.
      shipped: Whether to label the maps that come with the package instead. Their labels are not
        shown.
      port: The port of the page on 127.0.0.1; 0 takes any free port.

    Raises:
      ValueError: The folder has other maps.
    """
    maps = maps_to_label(study, shipped=shipped)
    server = page.serve(maps, study.folder / LABELS_FILE, port=port)
    print(
        f'http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C stops; nothing is lost)', flush=True
    )
    try:
        server.serve_forever()
    finally:
        print(f'Labels: {study.folder / LABELS_FILE}', flush=True)
        server.server_close()


def maps_to_label(study: Study, *, shipped: bool) -> MapSample:
    """Return the maps to label, and keep them in the folder of the study.

    Args:
      study: The study. Maps that an earlier run has drawn in its folder are used again.
      shipped: Whether to take the maps that come with the package instead of drawing some.

    Raises:
      ValueError: The folder has other maps: of another model, of other texts or settings, or not
        those that come with the package.
    """
    file = study.folder / MAPS_FILE
    note = file.with_suffix('.json')
    if shipped:
        content = (ANNOTATED / MAPS_FILE).read_bytes()
        if file.exists() and file.read_bytes() != content:
            raise ValueError(f'{file} has other maps than those that ship: choose another folder.')
        write_record(note, {'shipped': True})
        write_atomically(file, content)
        return read_maps(file)
    depends_on = study.on_texts() | {
        'dev': study.input('dev'),
        'count': study.config.patterns.count,
        'seed': study.config.seed,
    }
    if file.exists() and _noted(note) != depends_on:
        raise ValueError(
            f'{file} has maps of another model, of other texts or of other settings: choose '
            f'another folder, or delete it with {LABELS_FILE}.'
        )
    if not file.exists():
        write_record(note, depends_on)
        subject = study.subject
        maps = draw_maps(
            study.pretrained,
            study.dev,
            source=f'{subject.model}, {subject.texts}',
            count=study.config.patterns.count,
            max_length=study.config.encoding.max_length,
            seed=study.config.seed,
        )
        write_maps(file, maps)
    return read_maps(file)


def _noted(note: pathlib.Path) -> dict | None:
    """Return what maps were drawn from; None if nobody can tell any more."""
    try:
        return read_record(note)
    except (FileNotFoundError, ValueError) as error:
        logging.warning('Nobody can tell what the maps were drawn from: %s', error)
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """The predicted classes of maps, each by a model that was not trained with the map.

    Attributes:
      classes: The predicted class of each map [A], as its place in `CLASSES`.
    """

    classes: np.ndarray


def train(study: Study) -> None:
    """Cross-validate the classifier, train it on all maps, and write it and its tables."""
    config, folder = study.config.patterns, study.folder
    directory = pathlib.Path(config.annotated or ANNOTATED)
    maps, labels = read_annotated(directory)
    settings = training.TrainConfig(
        epochs=config.epochs,
        side=config.side,
        longest=config.longest or None,
        seed=study.config.seed,
    )
    depends_on = {
        'maps': digest(
            [(directory / name).read_bytes().hex() for name in (MAPS_FILE, LABELS_FILE)]
        ),
        'settings': dataclasses.asdict(settings),
    }
    found = {}
    for name, guess in training.MODELS.items():

        def predict(name=name, guess=guess) -> Predictions:
            logging.info('Cross-validating: %s', name)
            return Predictions(
                training.cross_validate(guess, maps, labels, settings, folds=config.folds)
            )

        kept = study.run.keep(
            f'predictions {name}', Predictions, depends_on | {'folds': config.folds}, predict
        )
        found[name] = kept.classes
        write_csv(
            folder / f'predictions_{name.replace(" ", "_")}.csv',
            ('example', 'label', 'prediction'),
            zip(maps.example, labels, kept.classes, strict=True),
        )
    _write_scores(folder, found, maps, labels)
    confusion = training.confusion(labels, found['CNN'])
    path = folder / 'classifier.safetensors'
    trained = study.run.folder_for('classifiers/all', depends_on).with_suffix('.safetensors')
    try:
        classifier = load_classifier(trained)
    except (FileNotFoundError, ValueError) as error:
        if trained.exists():
            logging.warning('Training again: %s', error)
        logging.info('Training on all %d maps', len(maps))
        classifier = training.fit(maps, labels, settings)
        save_classifier(trained, classifier)
    # The confusion depends on the folds, the network does not.
    save_classifier(path, dataclasses.replace(classifier, confusion=confusion))
    print(f'Classifier: {path.resolve()}')


def _write_scores(folder: pathlib.Path, found, maps: MapSample, labels: np.ndarray) -> None:
    scores = {name: training.score(labels, each, maps.text) for name, each in found.items()}
    write_csv(
        folder / 'scores.csv',
        ('model', 'macro_f1', 'macro_low', 'macro_high', 'weighted_f1', 'weighted_low',
         'weighted_high', 'accuracy', *(f'f1_{name}' for name in CLASSES)),
        (
            (name, each.macro_f1, *each.macro_interval, each.weighted_f1, *each.weighted_interval,
             each.accuracy, *each.f1)
            for name, each in scores.items()
        ),
    )  # fmt: skip
    confusion = training.confusion(labels, found['CNN'])
    write_csv(
        folder / 'confusion.csv',
        ('label', *CLASSES),
        ((name, *row) for name, row in zip(CLASSES, confusion, strict=True)),
    )
    # The maps that both models put into the right class are the best examples of the classes.
    clear = np.all([found[name] == labels for name in ('CNN', 'hand-made features')], axis=0)
    panels = {
        title: [
            (maps.source[number], maps.values[number].astype(np.float32))
            for number in np.flatnonzero(clear & (labels == index))[:2]
        ]
        for index, title in enumerate(TITLES)
    }
    plots.save(plots.class_examples(panels), folder / 'figures', 'classes')
    for name, each in scores.items():
        print(
            f'{name:>20}: macro F1 {each.macro_f1:.3f} ({each.macro_interval[0]:.3f} to '
            f'{each.macro_interval[1]:.3f}), weighted {each.weighted_f1:.3f}, '
            f'accuracy {each.accuracy:.3f}'
        )
