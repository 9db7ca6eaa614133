"""Maps drawn for annotation, the sheets on which a person labels them by eye, and the labels."""

import csv
import dataclasses
import pathlib
from collections.abc import Sequence

import matplotlib
import numpy as np
import scipy.sparse
from matplotlib.figure import Figure

from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.measure.maps import each_map
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.patterns.cnn import CLASSES

# Of the tables of labels; others may stand beside them.
COLUMNS = ('number', 'source', 'example', 'layer', 'head', 'class')
# In the folder of a set of annotated maps.
MAPS_FILE, LABELS_FILE = 'maps_to_label.npz', 'labels.csv'
# The set that ships: 648 maps.
ANNOTATED = pathlib.Path(__file__).parent / 'annotated'


@dataclasses.dataclass(frozen=True)
class Maps:
    """Attention maps of different lengths, with where they come from.

    Attributes:
      values: M maps [T, T], rows are queries.
      first_text: [M] length of [CLS] A [SEP]; the length itself for single sentences.
      source: [M] what model and texts, as 'gte-small, fine-tuned on MRPC'.
      example: [M] id of the example, as 'mrpc/dev/17'.
      layer, head: [M] from 0.
      text: [M] the same number where examples share a sentence: what is learnt from one is not
        tested on the other.
    """

    values: Sequence[np.ndarray]
    first_text: np.ndarray
    source: np.ndarray
    example: np.ndarray
    layer: np.ndarray
    head: np.ndarray
    text: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def take(self, chosen: Sequence[int] | np.ndarray) -> 'Maps':
        """Return some of the maps, in the given order."""
        chosen = np.asarray(chosen)
        arrays = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return Maps([self.values[index] for index in chosen], **arrays)


_ARRAYS = ('first_text', 'source', 'example', 'layer', 'head', 'text')


def shared_texts(examples: Sequence[Example]) -> np.ndarray:
    """Return [E] numbers, the same for examples that share a sentence, at once or through others.

    Sentences that differ in case or spaces alone are the same.
    """
    of_sentence = {}
    for index, example in enumerate(examples):
        for text in filter(None, (example.text_a, example.text_b)):
            of_sentence.setdefault(' '.join(text.lower().split()), []).append(index)
    # From the first example of a sentence to all of them.
    ends = np.array([(of[0], index) for of in of_sentence.values() for index in of]).T
    graph = scipy.sparse.coo_array((np.ones(ends.shape[1]), ends), shape=(len(examples),) * 2)
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]


def draw_maps(
    pretrained: Pretrained,
    examples: Sequence[Example],
    *,
    source: str,
    count: int,
    max_length: int,
    seed: int,
) -> Maps:
    """Draw maps at random, as many of each layer, and as many of short as of long inputs.

    Args:
      pretrained: the model.
      examples: all single sentences, or all pairs.
      source: what to call model and texts.
      count: maps; each of another example and of a random head.
      max_length: longer inputs are cut.
      seed: of the draw.

    Raises:
      ValueError: when there are fewer examples than maps.
    """
    if len(examples) < count:
        raise ValueError(f'{count} maps of {source} need as many examples, got {len(examples)}.')
    rng = np.random.default_rng(seed)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    # One example out of each of as many classes of length as there are maps.
    by_length = np.array_split(np.argsort(encoded.lengths, kind='stable'), count)
    chosen = [int(rng.choice(alike)) for alike in by_length]
    config = pretrained.config
    layers = rng.permutation(np.arange(count) % config.num_hidden_layers)
    heads = rng.integers(config.num_attention_heads, size=count)
    drawn = zip(each_map(pretrained, encoded, chosen), layers, heads, strict=True)
    return Maps(
        values=[maps[layer, head].astype(np.float16) for maps, layer, head in drawn],
        first_text=np.array([1 + np.flatnonzero(encoded.special[index])[1] for index in chosen]),
        source=np.array([source] * count),
        example=np.array([examples[index].id for index in chosen]),
        layer=layers,
        head=heads,
        text=shared_texts([examples[index] for index in chosen]),
    )


def write_maps(path: pathlib.Path, maps: Maps) -> None:
    """Write maps as float16, one after the other (.npz)."""
    stacked = {name: getattr(maps, name) for name in _ARRAYS}
    stacked['values'] = np.concatenate([value.astype(np.float16).ravel() for value in maps.values])
    stacked['lengths'] = np.array([len(value) for value in maps.values])
    write_arrays(path, stacked)


def read_maps(path: pathlib.Path) -> Maps:
    """Read what `write_maps` wrote."""
    arrays = read_arrays(path)
    lengths = arrays.pop('lengths')
    flat = np.split(arrays.pop('values'), np.cumsum(lengths**2)[:-1])
    values = [value.reshape(length, length) for value, length in zip(flat, lengths, strict=True)]
    return Maps(values, **arrays)


def row_of(maps: Maps, number: int, name: str) -> tuple:
    """Return a row of a table of labels: a map and its class, empty to take it back."""
    place = maps.layer[number] + 1, maps.head[number] + 1
    return (number, maps.source[number], maps.example[number], *place, name)


def read_labels(path: pathlib.Path, maps: Maps) -> dict[int, str]:
    """Return number of the map to class, in the order in which they were decided.

    Of several decisions on one map the last holds; an empty class takes it back.

    Raises:
      ValueError: for a file that is not such a table, or one of other maps.
    """
    if not path.exists():
        return {}
    with path.open(newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    labels = {}
    for line, row in enumerate(rows, 2):
        if tuple(row)[: len(COLUMNS)] != COLUMNS or row['class'] not in ('', *CLASSES):
            raise ValueError(
                f'{path}, line {line}: not a decision. Its columns are {", ".join(COLUMNS)}, and a '
                f'class is one of {", ".join(CLASSES)} or empty.'
            )
        number = int(row['number']) if row['number'].isdecimal() else len(maps)
        found = [row[name] for name in COLUMNS]
        if number >= len(maps) or found != [
            str(value) for value in row_of(maps, number, found[-1])
        ]:
            raise ValueError(
                f'{path}, line {line}: a label of another map than those of {MAPS_FILE}. Give each '
                'set of maps a folder of its own.'
            )
        labels.pop(number, None)
        if row['class']:
            labels[number] = row['class']
    return labels


def read_annotated(directory: str | pathlib.Path = ANNOTATED) -> tuple[Maps, np.ndarray]:
    """Read labelled maps; by default the set that ships.

    Args:
      directory: as `experiments.annotate` left it, with MAPS_FILE and LABELS_FILE.

    Returns:
      The maps that have a label, and their class ids [M], in the order of CLASSES.

    Raises:
      FileNotFoundError, ValueError: when there are no labels, or labels of other maps.
    """
    directory = pathlib.Path(directory)
    maps = read_maps(directory / MAPS_FILE)
    labels = read_labels(directory / LABELS_FILE, maps)
    if not labels:
        raise ValueError(
            f'{directory} has {len(maps)} maps and no labels: label them with '
            '`python -m experiments.annotate`.'
        )
    numbers = sorted(labels)
    return maps.take(numbers), np.array([CLASSES.index(labels[number]) for number in numbers])


def sheet(maps: Maps, numbers: Sequence[int | str], *, columns: int = 5) -> Figure:
    """Draw maps to be labelled by eye: nothing but the map, its number and where texts end.

    Each map has a colour scale of its own, from 0 to its greatest value. Red lines on the edges
    mark [SEP].

    Args:
      maps: in the order of the sheet.
      numbers: to write above them.
      columns: of the sheet.
    """
    rows = -(-len(maps) // columns)
    with matplotlib.rc_context({'font.size': 11}):
        figure = Figure(figsize=(2.6 * columns, 2.85 * rows), layout='constrained')
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, values, number, first in zip(
            axes.flat, maps.values, numbers, maps.first_text, strict=False
        ):
            axis.imshow(values.astype(np.float32), cmap='viridis', vmin=0, interpolation='nearest')
            for end in {int(first), len(values)}:
                axis.plot([end - 1, end - 1], [-3, -1], color='red', linewidth=1.5, clip_on=False)
                axis.plot([-3, -1], [end - 1, end - 1], color='red', linewidth=1.5, clip_on=False)
            axis.set_title(f'{number}', fontsize=12)
        return figure
