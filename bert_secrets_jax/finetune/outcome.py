"""The outcome of a fine-tuning: its curves, its scores, and the models."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats
from absl import logging
from jaxtyping import Float

from bert_secrets_jax import files
from bert_secrets_jax.checks import brief, check_name, tree
from bert_secrets_jax.finetune.checkpoints import curves
from bert_secrets_jax.finetune.metrics import described, interval, tested
from bert_secrets_jax.finetune.optimizers import MEASURES, recorded_steps
from bert_secrets_jax.finetune.seeds import MAPS, best_rows
from bert_secrets_jax.model import config
from bert_secrets_jax.model.weights import (
    Pretrained,
    from_pretrained,
    save_pretrained,
    with_pooling,
)
from bert_secrets_jax.names import named_parts
from bert_secrets_jax.ranges import Range
from bert_secrets_jax.stats.correlations import p_uncorrelated
from bert_secrets_jax.stats.student import LEVEL

OUTCOME = 'outcome.json'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuned:
    """The outcome of `finetune`: one fine-tuned model per seed, and its curves and scores.

    Attributes:
      start: The weights that training began from, 'pretrained' or 'random'.
      seeds, metrics: The seeds, each of one model, and the names of the metrics.
      label_names: The names of the classes; a single name means regression.
      train_examples, dev_examples: The numbers of examples.
      larger_class: The share of the most frequent class among the dev examples, which is the
        accuracy of always answering it; NaN for a regression.
      history: The rows of the training curves. A row has 'split', 'seed', 'step', 'epoch' and
        'loss'; for the split 'train' also 'learning_rate', and for 'dev' the metrics, their mean
        'score', and always 'accuracy' or, for a regression, 'pearson'. Rows with F1, macro F1 or
        Matthews' r have the ends of their intervals, such as 'f1_low'. Epoch 0 is before training.
        Rows of the split 'maps' have those of `similarity` in place of a loss.
      folder: The folder of the models, the curves and the checkpoints; None if all is in memory.
      dtype: The type of number in which the models compute matrix products.
      head: 'sequence_classification' (or a regression), 'token_classification',
        'question_answering', or 'embedding'.
      movement: [S, R, P, M] how each part of a model moved, by seed and recorded step: the
        `optimizers.MEASURES` of the embeddings, each layer, the head. None from a former version.
      in_memory: The models of a fine-tuning without a folder; otherwise empty.
    """

    start: str
    seeds: tuple[int, ...]
    metrics: tuple[str, ...]
    label_names: tuple[str, ...]
    train_examples: int
    dev_examples: int
    larger_class: float
    history: list[dict[str, Any]] = dataclasses.field(repr=False)
    folder: pathlib.Path | None = None
    dtype: config.ComputeDtype = 'float32'
    head: str = config.SEQUENCES
    movement: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)
    in_memory: tuple[Pretrained, ...] = dataclasses.field(default=(), repr=False, compare=False)

    _repr_html_ = tree

    def __repr__(self) -> str:
        # One that was made by hand may have no curve.
        return f'{brief(self)[:-1]}, score={self.score!r})' if self.history else brief(self)

    @functools.cached_property
    def models(self) -> tuple[Pretrained, ...]:
        """The models after the last step, one per seed; loaded from the folder when first used."""
        if self.folder is None:
            return self.in_memory
        folders = map(self.checkpoint, self.seeds)
        found = (from_pretrained(folder, dtype=self.dtype) for folder in folders)
        return tuple(map(with_pooling, found) if self.head == config.EMBEDDING else found)

    def first(self, count: int) -> 'Finetuned':
        """Return the outcome of the first seeds alone."""
        seeds, moved = self.seeds[:count], self.movement
        return dataclasses.replace(
            self,
            seeds=seeds,
            history=[row for row in self.history if row['seed'] in seeds],
            movement=None if moved is None else moved[:count],
            in_memory=self.in_memory[:count],
        )

    def checkpoint(self, seed: int, which: str = 'last') -> pathlib.Path:
        """Return the folder of a seed's model in Hugging Face's layout.

        `which` is 'last' for the model after the last step, as in the paper. It is 'best' for that
        of the best epoch, which was chosen on the dev examples.

        Raises:
          ValueError: The models are in memory, or there is no such model.
        """
        if self.folder is None:
            raise ValueError('The models are in memory: give bs.finetune a folder to keep them.')
        check_name('seed', seed, self.seeds)
        check_name('which', which, ('last', 'best'))
        return checkpoint_folder(self.folder, seed, which)

    @property
    def scores(self) -> list[dict[str, Any]]:
        """The dev row of each seed after the last epoch."""
        return self._dev_rows(max(row['epoch'] for row in self.history if row['split'] == 'dev'))

    @property
    def first_scores(self) -> list[dict[str, Any]]:
        """The dev row of each seed before training."""
        return self._dev_rows(0)

    @property
    def best_scores(self) -> list[dict[str, Any]]:
        """The dev row of each seed's best epoch, chosen on the same examples."""
        rows = best_rows(self.history)
        return [rows[seed] for seed in self.seeds]

    @property
    def similarity(self) -> dict[int, Float[np.ndarray, 'S L']]:
        """The cosine similarity of maps before training and after some steps, by their number.

        It is the mean over the heads of a layer and over the dev examples, of each seed. Empty
        without `maps_every`.
        """
        found = {}
        for row in filter(lambda each: each['split'] == MAPS, self.history):
            layers = range(1, 1 + sum(name.startswith('similarity') for name in row))
            found[row['step'], row['seed']] = [row[f'similarity_L{layer}'] for layer in layers]
        steps = sorted({step for step, _ in found})
        return {step: np.array([found[step, seed] for seed in self.seeds]) for step in steps}

    @property
    def intervals(self) -> tuple[tuple[float, float], ...]:
        """The ends of the 95 % interval of each seed's last score, `tested`, over dev examples.

        They are Wilson's (1927) for accuracy, Fisher's (1921) for Pearson's r, and those of a score
        test for Matthews' r. Both ends are NaN where none is known.
        """
        return tuple(interval(self.tested, row, self.dev_examples) for row in self.scores)

    @property
    def score(self) -> str:
        """How well the last models do, in words: means over seeds, also of the intervals' ends."""
        sizes = self.dev_examples, self.larger_class
        return described(self.tested, self.metrics, self.scores, *sizes)

    @property
    def p_learnt(self) -> tuple[float, ...]:
        """The p-value of each seed's last model under the hypothesis that it has learnt nothing.

        Then it is right no more often than by always answering the most frequent class (one-sided
        exact binomial test). Values of a regression are not positively correlated with the true
        ones (one-sided test of Pearson's r; 1 where all predictions are the same). Where Matthews'
        correlation of two classes is the first metric, Fisher's exact test takes its place. Tags of
        words are tested against always answering the most frequent one. Answers are tested against
        the part of each text at which the model sees the answer to another question (Student's
        t-test over texts).
        """
        return tuple(self._p_value(row) for row in self.scores)

    @property
    def tested(self) -> str:
        """The metric by which it is tested whether the models have learnt anything."""
        of_tokens = {config.TOKENS: 'word_accuracy', config.QUESTIONS: 'answer_f1'}
        return of_tokens.get(self.head) or tested(self.metrics, len(self.label_names))

    @property
    def learnt(self) -> bool:
        """Whether each of the models has learnt something (a `p_learnt` of at most 0.05)."""
        return all(p_value <= LEVEL for p_value in self.p_learnt)

    @classmethod
    def load(cls, folder: str | pathlib.Path, *, check_models: bool = True) -> 'Finetuned':
        """Read a finished fine-tuning from its folder; its models are loaded when first used.

        Args:
          folder: The folder that was given to `finetune`.
          check_models: Whether the files of the models are compared with their checksums.

        Raises:
          FileNotFoundError: The fine-tuning in the folder is not finished, or there is none.
          ValueError: A file of it is damaged or missing, or of another version of this package.
        """
        folder = pathlib.Path(folder)
        if not (folder / OUTCOME).exists():
            raise FileNotFoundError(
                f'{folder} holds no finished fine-tuning: call bs.finetune(..., folder=...).'
            )
        try:
            values: dict[str, Any] = {'head': config.SEQUENCES, 'movement': None}
            values |= files.read_record(folder / OUTCOME)
            wrong = [name for name, is_right in _KINDS.items() if not is_right(values[name])]
            if wrong:
                raise ValueError(f'{wrong[0]} is of another kind')
            if {row['seed'] for row in values['history']} != set(values['seeds']):
                raise ValueError('history has other seeds')
            if values['movement'] is not None:
                values['movement'] = np.array(values['movement'], np.float32)
                if values['movement'].shape[::3] != (len(values['seeds']), len(MEASURES)):
                    raise ValueError('movement has another shape')
            sequences = ('seeds', 'metrics', 'label_names')
            values |= {name: tuple(values[name]) for name in sequences}
            read = cls(**values, folder=folder)
            # Rows that are missing show here, and not wherever somebody asks first.
            _ = (read.first_scores, read.best_scores, read.p_learnt, read.similarity)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise ValueError(
                f'{folder / OUTCOME} is damaged or of another version: fine-tuning again with the '
                'same folder writes it again.'
            ) from error
        for seed in read.seeds if check_models else ():
            for which in ('last', 'best'):
                check_model(checkpoint_folder(folder, seed, which))
        return read

    def _dev_rows(self, epoch: int) -> list[dict[str, Any]]:
        rows = [row for row in self.history if row['split'] == 'dev' and row['epoch'] == epoch]
        return sorted(rows, key=lambda row: self.seeds.index(row['seed']))

    def _p_value(self, row: dict[str, Any]) -> float:
        if 'p_learnt' in row:
            return row['p_learnt']
        larger_class = self.larger_class if self.tested == 'accuracy' else math.nan
        return p_learnt(row[self.tested], larger_class, self.dev_examples)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_row(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get('split') in ('train', 'dev', MAPS)
        and all(_is_number(number) for name, number in value.items() if name != 'split')
        and {'seed', 'step', 'epoch', *['loss'] * (value['split'] != MAPS)} <= value.keys()
    )


def _list_of(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) > 0 and all(map(is_right, value))


_COUNT = Range(0, 2**63)
# A check of each value of the file.
_KINDS = {
    'start': lambda value: value in ('pretrained', 'random'),
    'seeds': _list_of(_COUNT.__contains__),
    'metrics': _list_of(lambda value: isinstance(value, str)),
    'label_names': _list_of(lambda value: isinstance(value, str)),
    'train_examples': _COUNT.__contains__,
    'dev_examples': _COUNT.__contains__,
    # NaN for a regression.
    'larger_class': lambda value: _is_number(value) and not (value < 0 or value > 1),
    'history': _list_of(_is_row),
    'dtype': lambda value: value in config.COMPUTE_DTYPES,
    'movement': lambda value: value is None or isinstance(value, list),
    'head': lambda value: (
        value in (config.SEQUENCES, config.TOKENS, config.QUESTIONS, config.EMBEDDING)
    ),
}


def p_learnt(value: float, larger_class: float, examples: int) -> float:
    """Return `Finetuned.p_learnt` of a score; `larger_class` is NaN for a correlation."""
    if math.isnan(larger_class):
        if math.isnan(value) or examples < 3:
            return 1.0
        return p_uncorrelated(value, examples)
    right = round(value * examples)
    return float(scipy.stats.binomtest(right, examples, larger_class, 'greater').pvalue)


def checkpoint_folder(folder: pathlib.Path, seed: int, which: str) -> pathlib.Path:
    """Return the folder of a seed's 'last' or 'best' model, within the folder of a fine-tuning."""
    return folder / f'seed{seed}' / which


def save_model(pretrained: Pretrained, folder: pathlib.Path) -> None:
    """Write a model, and the checksums of its files."""
    noted = checksums_of(folder)
    # First, so that checksums are never those of former files.
    noted.unlink(missing_ok=True)
    save_pretrained(pretrained, folder)
    files.write_record(noted, files.checksums(folder))


def checksums_of(folder: pathlib.Path) -> pathlib.Path:
    """Return the file whose being there says that `save_model` has completed a model."""
    return folder.with_name(f'{folder.name}.json')


def check_model(folder: pathlib.Path) -> None:
    """Raise ValueError if a file that `save_model` wrote is missing or damaged, and name it."""
    noted = checksums_of(folder)
    if not noted.exists():
        raise ValueError(f'{noted} is missing, which has the checksums of the model.')
    for file in files.differing(folder, files.read_record(noted)):
        raise ValueError(f'{file} is missing, or damaged since it was written.')


def write_outcome(finetuned: Finetuned) -> None:
    """Write everything but the models into the folder; OUTCOME marks that all is finished."""
    values = {
        field.name: getattr(finetuned, field.name)
        for field in dataclasses.fields(finetuned)
        if field.name not in ('folder', 'in_memory')
    }
    assert finetuned.folder is not None
    if finetuned.movement is not None:
        values['movement'] = finetuned.movement.tolist()
    for name, text in _tables(finetuned).items():
        files.write_text(finetuned.folder / name, text)
    files.write_record(finetuned.folder / OUTCOME, values)


def mend_tables(finetuned: Finetuned) -> None:
    """Write tables again that are not those of a finished fine-tuning, and say so."""
    assert finetuned.folder is not None
    for name, text in _tables(finetuned).items():
        file = finetuned.folder / name
        try:
            if files.read_text(file) == text:
                continue
        except (OSError, ValueError):
            logging.debug('%s cannot be read.', file)
        logging.warning('%s is missing, or not what was written: written again.', file)
        files.write_text(file, text)


def _tables(finetuned: Finetuned) -> dict[str, str]:
    """Return the texts of the tables in the folder of a fine-tuning, by their names."""
    tables = curves(finetuned.history)
    if (moved := finetuned.movement) is not None:
        steps, names = recorded_steps(finetuned.scores[0]['step']), named_parts(moved.shape[2])
        rows = (
            (finetuned.seeds[seed], steps[row], names[part], *moved[seed, row, part].tolist())
            for seed, row, part in np.ndindex(moved.shape[:3])
        )
        columns = 'seed', 'step', 'layer', *MEASURES
        tables['movement.csv'] = files.csv_text(columns, rows)
    return tables
