"""Maps drawn for annotation, the sheets on which a person labels them by eye, and their labels."""

import csv
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.measure.maps import each_map
from bert_secrets_jax.model.weights import Pretrained, check_pretrained
from bert_secrets_jax.patterns.cnn import CLASSES

# Loaded where it is used, since it is slow.
if TYPE_CHECKING:
    import matplotlib.figure

# The columns of a table of labels; it may have others behind them.
COLUMNS = ('number', 'source', 'example', 'layer', 'head', 'class')
# The files in the folder of a set of annotated maps.
MAPS_FILE, LABELS_FILE = 'maps_to_label.npz', 'labels.csv'
# The set that ships: 648 maps.
ANNOTATED = pathlib.Path(__file__).parent / 'annotated'


@dataclasses.dataclass(frozen=True)
class MapSample:
    """Attention maps of different lengths, and their origins.

    Attributes:
      values: The A maps [T, T]. Rows are queries.
      first_text: [A] The length of [CLS] A [SEP], which is the whole length for single sentences.
      source: [A] The model and the texts, such as 'gte-small, fine-tuned on MRPC'.
      example: [A] The id of the example, such as 'mrpc/dev/17'.
      layer, head: [A] The layer and the head, which count from 0.
      text: [A] A number that is the same for examples that share a sentence, so that a classifier
        trained on one of these is not tested on another.
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

    def take(self, chosen: Sequence[int] | np.ndarray) -> 'MapSample':
        """Return some of the maps, in the given order."""
        chosen = np.asarray(chosen)
        arrays = {name: getattr(self, name)[chosen] for name in _ARRAYS}
        return MapSample([self.values[index] for index in chosen], **arrays)


_ARRAYS = ('first_text', 'source', 'example', 'layer', 'head', 'text')


def shared_texts(texts: Sequence[Text]) -> np.ndarray:
    """Return a number for each text [E], which is the same for texts that share a sentence.

    Two texts that each share a sentence with a third one have the same number, too. Sentences that
    differ only in case or spaces count as the same.

    Args:
      texts: Strings, pairs of strings or examples (see `as_examples`).
    """
    import scipy.sparse

    examples, having = as_examples(texts), {}
    for index, example in enumerate(examples):
        for text in filter(None, (example.text_a, example.text_b)):
            having.setdefault(' '.join(text.lower().split()), []).append(index)
    # From the first example that has a sentence to all of them.
    ends = np.array([(members[0], index) for members in having.values() for index in members]).T
    graph = scipy.sparse.coo_array((np.ones(ends.shape[1]), ends), shape=(len(examples),) * 2)
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1]


def draw_maps(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    source: str,
    count: int,
    max_length: int,
    seed: int,
) -> MapSample:
    """Draw maps at random, equally many of each layer, and equally many of short and long inputs.

    Args:
      pretrained: The model.
      texts: The texts; all single sentences, or all pairs.
      source: The name of the model and the texts.
      count: The number of maps. Each is of another text and of a random head.
      max_length: The greatest number of tokens. Longer inputs are cut.
      seed: The seed of the draw.

    Raises:
      ValueError: There are fewer texts than maps.
    """
    check_pretrained(pretrained)
    examples = as_examples(texts)
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
    return MapSample(
        values=[maps[layer, head].astype(np.float16) for maps, layer, head in drawn],
        first_text=np.array([1 + np.flatnonzero(encoded.special[index])[1] for index in chosen]),
        source=np.array([source] * count),
        example=np.array([examples[index].id for index in chosen]),
        layer=layers,
        head=heads,
        text=shared_texts([examples[index] for index in chosen]),
    )


def write_maps(path: pathlib.Path, maps: MapSample) -> None:
    """Write maps to a file (.npz), as float16 and one after the other."""
    stacked = {name: getattr(maps, name) for name in _ARRAYS}
    stacked['values'] = np.concatenate([value.astype(np.float16).ravel() for value in maps.values])
    stacked['lengths'] = np.array([len(value) for value in maps.values])
    write_arrays(path, stacked)


def read_maps(path: pathlib.Path) -> MapSample:
    """Read the maps of a file that `write_maps` wrote."""
    arrays = read_arrays(path)
    lengths = arrays.pop('lengths')
    flat = np.split(arrays.pop('values'), np.cumsum(lengths**2)[:-1])
    values = [value.reshape(length, length) for value, length in zip(flat, lengths, strict=True)]
    return MapSample(values, **arrays)


def row_of(maps: MapSample, number: int, name: str) -> tuple:
    """Return a row of a table of labels, with the columns COLUMNS.

    Args:
      maps: The maps.
      number: The number of the map that is labelled.
      name: The name of its class; empty to take its label back.
    """
    place = maps.layer[number] + 1, maps.head[number] + 1
    return (number, maps.source[number], maps.example[number], *place, name)


def read_labels(path: pathlib.Path, maps: MapSample) -> dict[int, str]:
    """Read the classes of the labelled maps, in the order of the decisions.

    If a map has several decisions, the last one holds; an empty class takes the label back.

    Args:
      path: The table of labels.
      maps: The maps that were labelled.

    Returns:
      The class of each labelled map by its number; empty if there is no such file.

    Raises:
      ValueError: The file is not such a table, or has labels of other maps.
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


def read_annotated(directory: str | pathlib.Path = ANNOTATED) -> tuple[MapSample, np.ndarray]:
    """Read labelled maps.

    Args:
      directory: A folder with MAPS_FILE and LABELS_FILE, as `patterns.page.serve` leaves it. The
        default is the set that comes with the package.

    Returns:
      The maps that have a label, and the class of each of them [A], as its place in CLASSES.

    Raises:
      FileNotFoundError: There are no maps.
      ValueError: There are no labels, or labels of other maps.
    """
    directory = pathlib.Path(directory)
    maps = read_maps(directory / MAPS_FILE)
    labels = read_labels(directory / LABELS_FILE, maps)
    if not labels:
        raise ValueError(
            f'{directory} has {len(maps)} maps and no labels: label them on the page that '
            'bs.patterns.serve(maps, folder / LABELS_FILE) shows in a browser.'
        )
    numbers = sorted(labels)
    return maps.take(numbers), np.array([CLASSES.index(labels[number]) for number in numbers])


def sheet(
    maps: MapSample, numbers: Sequence[int | str], *, columns: int = 5
) -> 'matplotlib.figure.Figure':
    """Draw maps to be labelled by eye: only the map, its number and where its texts end.

    Each map has a colour scale of its own, from 0 to its greatest value. Red lines on the edges
    mark [SEP].

    Args:
      maps: The maps in the order of the sheet.
      numbers: The number or other text to write above each map.
      columns: The number of columns of the sheet.
    """
    import matplotlib
    from matplotlib.figure import Figure

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
