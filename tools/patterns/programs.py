"""Labelling maps by eye, and training the classifier of patterns on them (section 4.1)."""

import dataclasses
import pathlib

import numpy as np
from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.files import read_record, write_atomically, write_csv, write_record
from bert_secrets_jax.local import serve_until_stopped
from bert_secrets_jax.patterns.classes import CLASSES, TITLES
from bert_secrets_jax.patterns.classifier import save_classifier
from bert_secrets_jax.patterns.correct import f1_of
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.runs.run import digest
from tools.patterns import page, rivals, sample
from tools.patterns.fit import fit
from tools.patterns.maps import MapSample, features_of
from tools.patterns.sample import (
    ANNOTATED,
    LABELS_FILE,
    MAPS_FILE,
    draw_maps,
    read_annotated,
    read_maps,
    write_maps,
)


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
    try:
        serve_until_stopped(server)
    finally:
        print(f'Labels: {study.folder / LABELS_FILE}', flush=True)


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
    given = Given(study)
    depends_on = {
        'weights': given.digest('pretrained'),
        'dev': given.digest('dev'),
        'max_length': study.config.encoding.max_length,
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
            given.value('pretrained'),
            given.value('dev'),
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
    """The predictions of a model for maps that it was not fitted to.

    Attributes:
      scores: The score of each class for each map [A, C], the greatest for the predicted one.
    """

    scores: np.ndarray


def train(study: Study) -> None:
    """Evaluate the classifier leaving texts, heads and models out, fit it, and write its tables."""
    config, folder = study.config.patterns, study.folder
    directory = pathlib.Path(config.annotated or ANNOTATED)
    maps, labels = read_annotated(directory)
    settings = rivals.TrainConfig(
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
        'folds': config.folds,
    }
    logging.info('Computing the features of %d maps', len(maps))
    inputs = rivals.Inputs(maps, features_of(maps))
    models = [name for name in rivals.MODELS if name != 'CNN' or config.epochs]
    found = {}
    for leave_out in rivals.LEAVE_OUT:
        if leave_out == 'model' and len(np.unique(rivals.groups_of(maps, leave_out))) < 2:
            logging.warning('All maps are of one model: no model can be left out.')
            continue
        for name in models:

            def predict(name=name, leave_out=leave_out) -> Predictions:
                logging.info('Cross-validating: %s, leaving one %s out', name, leave_out)
                return Predictions(
                    rivals.cross_validate(
                        rivals.MODELS[name],
                        inputs,
                        labels,
                        settings,
                        leave_out=leave_out,
                        folds=config.folds,
                    )
                )

            key = f'predictions {name} leaving one {leave_out} out'
            kept = study.run.keep(key, Predictions, depends_on, predict)
            found[leave_out, name] = kept.scores
    _write_scores(folder, found, maps, labels)
    # Maps of other models are the hardest test that there is.
    hardest, _ = list(found)[-1]
    logits = found[hardest, 'kernel']
    of_model = rivals.groups_of(maps, 'model')
    classifier = rivals.calibrated(fit(maps, labels), logits, labels, of_model)
    path = folder / 'classifier.safetensors'
    save_classifier(path, classifier)
    sure = rivals.probabilities(logits, labels, rivals.groups_of(maps, hardest))
    print(
        f'Expected calibration error, leaving one {hardest} out: '
        f'{rivals.calibration_error(sure, labels):.3f}'
    )
    print(f'Classifier: {path.resolve()}')


def _write_scores(folder: pathlib.Path, found, maps: MapSample, labels: np.ndarray) -> None:
    predicted = {key: scores.argmax(axis=1) for key, scores in found.items()}
    scores = {
        # Whole texts or heads are drawn. Of models there are too few to be drawn.
        (leave_out, name): rivals.score(
            labels, each, rivals.groups_of(maps, 'head' if leave_out == 'head' else 'text')
        )
        for (leave_out, name), each in predicted.items()
    }
    write_csv(
        folder / 'scores.csv',
        ('left_out', 'model', 'macro_f1', 'macro_low', 'macro_high', 'weighted_f1', 'weighted_low',
         'weighted_high', 'accuracy', 'accuracy_low', 'accuracy_high',
         *(f'f1_{name}' for name in CLASSES)),
        (
            (*key, each.macro_f1, *each.macro_interval, each.weighted_f1, *each.weighted_interval,
             each.accuracy, *each.accuracy_interval, *each.f1)
            for key, each in scores.items()
        ),
    )  # fmt: skip
    hardest, _ = list(found)[-1]
    origins = sample.origins(maps)
    write_csv(
        folder / 'scores_origins.csv',
        ('left_out', 'model', 'origin', 'maps', 'accuracy', 'macro_f1'),
        (
            (*key, origin, here.sum(), (each == labels)[here].mean(),
             np.nanmean(f1_of(rivals.confusion(labels[here], each[here]))))
            for key, each in predicted.items()
            for origin in np.unique(origins)
            for here in [origins == origin]
        ),
    )  # fmt: skip
    write_csv(
        folder / 'predictions.csv',
        ('origin', 'example', 'layer', 'head', 'label', *map(' '.join, predicted)),
        zip(origins, maps.example, maps.layer + 1, maps.head + 1, labels, *predicted.values(),
            strict=True),
    )  # fmt: skip
    table = rivals.confusion(labels, predicted[hardest, 'kernel'])
    write_csv(
        folder / 'confusion.csv',
        ('label', *CLASSES),
        ((name, *row) for name, row in zip(CLASSES, table, strict=True)),
    )
    # The maps that both models put into the right class are the best examples of the classes.
    clear = np.all(
        [predicted[hardest, name] == labels for name in ('kernel', 'regression')], axis=0
    )
    panels = {
        title: [
            (maps.source[number], maps.values[number].astype(np.float32))
            for number in np.flatnonzero(clear & (labels == index))[:2]
        ]
        for index, title in enumerate(TITLES)
    }
    plots.save(plots.class_examples(panels), folder / 'figures', 'classes')
    for (leave_out, name), each in scores.items():
        print(
            f'leaving one {leave_out} out, {name:>13}: macro F1 {each.macro_f1:.3f} '
            f'({each.macro_interval[0]:.3f} to {each.macro_interval[1]:.3f}), '
            f'weighted {each.weighted_f1:.3f}, accuracy {each.accuracy:.3f} '
            f'({each.accuracy_interval[0]:.3f} to {each.accuracy_interval[1]:.3f})'
        )
