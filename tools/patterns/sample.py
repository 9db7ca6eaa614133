"""Maps drawn for annotation, the sheets on which a person labels them by eye, and their labels."""

import codecs
import csv
import io
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert_secrets_jax.data.encoding import tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.files import as_cell, read_arrays, read_bytes, write_arrays
from bert_secrets_jax.measure.token_maps import each_kind
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.patterns.classes import CLASSES
from tools.patterns.maps import ARRAYS, MapSample

# Loaded where it is used, since it is slow.
if TYPE_CHECKING:
    import matplotlib.figure

# The columns of a table of labels; it may have others behind them.
COLUMNS = ('number', 'source', 'example', 'layer', 'head', 'class')
# The files in the folder of a set of annotated maps.
MAPS_FILE, LABELS_FILE = 'maps_to_label.npz', 'labels.csv'
# The set that ships: 1,546 maps.
ANNOTATED = pathlib.Path(__file__).parent / 'annotated'


def origins(maps: MapSample) -> np.ndarray:
    """Return the origin of each map [A]: the name of a model with all that was tuned from it.

    It is what stands before the first comma of `source`; both models of sapiens, which are of one
    recipe, are one.
    """
    names = [str(source).split(',')[0] for source in maps.source]
    return np.array(['sapiens' if name.startswith('sapiens ') else name for name in names])


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
    check_whole(pretrained)
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
    drawn = zip(each_kind(pretrained, encoded, chosen), layers, heads, strict=True)
    return MapSample(
        values=[maps['weights'][layer, head].astype(np.float16) for maps, layer, head in drawn],
        first_text=np.array([1 + np.flatnonzero(encoded.special[index])[1] for index in chosen]),
        source=np.array([source] * count),
        example=np.array([examples[index].id for index in chosen]),
        layer=layers,
        head=heads,
        text=shared_texts([examples[index] for index in chosen]),
    )


def write_maps(path: pathlib.Path, maps: MapSample) -> None:
    """Write maps to a file (.npz), as float16 and one after the other."""
    stacked = {name: getattr(maps, name) for name in ARRAYS}
    stacked['values'] = np.concatenate([value.astype(np.float16).ravel() for value in maps.values])
    stacked['lengths'] = np.array([len(value) for value in maps.values])
    write_arrays(path, stacked)


def read_maps(path: pathlib.Path) -> MapSample:
    """Read the maps of a file that `write_maps` wrote.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It is damaged, or holds something else; the error names the file.
    """
    arrays = read_arrays(path)
    damage = _damage(arrays)
    if damage:
        raise ValueError(
            f'{path} does not hold attention maps: {damage}. Copy it again from where it came '
            'from, or delete it to draw maps again.'
        )
    lengths = arrays.pop('lengths')
    flat = np.split(arrays.pop('values'), np.cumsum(lengths.astype(np.int64) ** 2)[:-1])
    values = [value.reshape(length, length) for value, length in zip(flat, lengths, strict=True)]
    return MapSample(values, **arrays)


def _damage(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return what `write_maps` cannot have written; None if it can have written all of it."""
    names = {'values', 'lengths', *ARRAYS}
    if arrays.keys() != names:
        return f'its arrays are {", ".join(sorted(arrays))}, not {", ".join(sorted(names))}'
    kinds = {'values': 'f', 'source': 'U', 'example': 'U'}
    for name, array in arrays.items():
        if array.dtype.kind not in kinds.get(name, 'iu') or array.ndim != 1:
            return f'{name} is an array of {array.dtype} with the shape {array.shape}'
    for name in ARRAYS:
        if len(arrays[name]) != len(arrays['lengths']):
            return f'{name} is of {len(arrays[name])} maps, not {len(arrays["lengths"])}'
    for name in ('source', 'example'):
        # NumPy takes any number for a character, and fails when the text is used.
        codes = np.frombuffer(arrays[name].tobytes(), f'{arrays[name].dtype.str[0]}u4')
        if codes.max(initial=0) > sys.maxunicode:
            return f'{name} has characters that do not exist'
    # Python's numbers, which do not overflow.
    lengths = arrays['lengths'].tolist()
    if not lengths:
        return 'there are no maps'
    if sum(length**2 for length in lengths) != len(arrays['values']):
        return 'the lengths do not fit the number of values'
    # With this, each length is at least 1.
    first_text = arrays['first_text'].tolist()
    if not all(1 <= first <= length for first, length in zip(first_text, lengths, strict=True)):
        return 'a first text is longer than its map, or empty'
    for name in ('layer', 'head', 'text'):
        if arrays[name].min() < 0:
            return f'a {name} is negative'
    # Not the other way round, so that no NaN passes.
    if not np.all((arrays['values'] >= 0) & (arrays['values'] <= 1)):
        return 'an attention is not between 0 and 1'
    return None


def row_of(maps: MapSample, number: int, name: str) -> tuple:
    """Return a row of a table of labels, with the columns COLUMNS.

    Args:
      maps: The maps.
      number: The number of the map that is labelled.
      name: The name of its class; empty to take its label back.
    """
    texts = _one_line(str(maps.source[number])), _one_line(str(maps.example[number]))
    return (number, *texts, maps.layer[number] + 1, maps.head[number] + 1, name)


def _one_line(text: str) -> str:
    """Return a text as one line that UTF-8 can spell, so that a row is one line of its file."""
    line = text.translate({ord(each): ' ' for each in '\0\r\n'})
    return line.encode(errors='backslashreplace').decode()


def number_of(text: str, count: int) -> int | None:
    """Return the number that a text spells in ASCII digits; None if it is not below a count.

    Other texts are never converted: `int` takes the digits of all scripts, and raises an error of
    its own for thousands of them.
    """
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < count:
        return int(text)
    return None


def read_labels(path: pathlib.Path, maps: MapSample) -> dict[int, str]:
    """Read the classes of the labelled maps, in the order of the decisions.

    Args:
      path: The table of labels.
      maps: The maps that were labelled.

    Returns:
      The class of each labelled map by its number; empty if there is no such file.

    Raises:
      ValueError: The file is not such a table, or has labels of other maps; see `read_decisions`.
    """
    return labels_of(read_decisions(path, maps)[1])


def labels_of(rows: Iterable[Sequence]) -> dict[int, str]:
    """Return the classes of the labelled maps by their numbers, in the order of the decisions.

    If a map has several decisions, the last one holds; an empty class takes the label back.

    Args:
      rows: Rows as `row_of` or `read_decisions` returns them.
    """
    labels = {}
    for number, *_, name in (row[: len(COLUMNS)] for row in rows):
        labels.pop(int(number), None)
        if name:
            labels[int(number)] = name
    return labels


def read_decisions(path: pathlib.Path, maps: MapSample) -> tuple[Sequence[str], list[list[str]]]:
    """Read all decisions of a table of labels, former ones and those taken back, too.

    Earlier versions appended rows, so that a kill could leave half of the last one. It is left out
    with a warning.

    Args:
      path: The table of labels.
      maps: The maps that were labelled.

    Returns:
      The columns, which begin with COLUMNS, and the rows as they are in the file. If there is no
      such file, these are COLUMNS and no rows.

    Raises:
      ValueError: The file is not such a table, or has labels of other maps. The error names the
        file and the line.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return COLUMNS, []
    if b'\0' in data:
        line = data.count(b'\n', 0, data.index(b'\0')) + 1
        raise ValueError(f'{path}, line {line}: a NUL character. The file is damaged or not UTF-8.')
    end = max(data.rfind(b'\n'), data.rfind(b'\r')) + 1
    if end and data[end:] and _is_half(data[end:]):
        line = data.count(b'\n', 0, end) + 1
        logging.warning('%s, line %d: half of a decision is left out. Decide again.', path, line)
        data = data[:end]
    try:
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise ValueError(f'{path}, line {line}: not UTF-8. Save it as UTF-8.') from error
    if not text:
        raise ValueError(f'{path}, line 1: the file is empty. Delete it to begin without labels.')
    # Strict, since otherwise a quotation mark that is not closed hides all rows behind it.
    reader = csv.reader(io.StringIO(text, newline=''), strict=True)
    columns, rows, line = None, [], 1
    try:
        for row in reader:
            if columns is None:
                columns = row
                if tuple(columns[: len(COLUMNS)]) != COLUMNS:
                    raise ValueError(
                        f'{path}, line {line}: not the columns of decisions, {", ".join(COLUMNS)}.'
                    )
            elif row:
                _check_decision(f'{path}, line {line}', row, len(columns), maps)
                rows.append(row)
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f'{path}, line {line}: not a row of a CSV table ({error}).') from error
    return columns, rows


def _is_half(line: bytes) -> bool:
    """Return whether a last line without line end can be the beginning of a longer row."""
    try:
        # The end may be half of a character.
        cells = next(
            csv.reader([codecs.getincrementaldecoder('utf-8')().decode(line)], strict=True)
        )
    except UnicodeDecodeError:
        return False
    except csv.Error:
        return True
    if len(cells) != len(COLUMNS):
        return len(cells) < len(COLUMNS)
    # 'vertical' may have become 'vertical_diagonal'. An empty class holds, whatever it was to
    # become: it takes the label back, and so the map is shown again.
    name = cells[-1]
    return name != '' and any(each != name and each.startswith(name) for each in CLASSES)


def _check_decision(place: str, row: Sequence[str], most: int, maps: MapSample) -> None:
    """Refuse a row that is no decision about one of these maps."""
    found = row[: len(COLUMNS)]
    if not len(COLUMNS) <= len(row) <= most or found[-1] not in ('', *CLASSES):
        raise ValueError(
            f'{place}: not a decision. Its columns are {", ".join(COLUMNS)}, and a class is one of '
            f'{", ".join(CLASSES)} or empty.'
        )
    number = number_of(found[0], len(maps))
    expected = () if number is None else row_of(maps, number, found[-1])
    # Earlier versions did not write cells as `as_cell` spells them.
    if [as_cell(_one_line(cell)) for cell in found] != [as_cell(str(cell)) for cell in expected]:
        raise ValueError(
            f'{place}: a label of another map than those of {MAPS_FILE}. Give each set of maps a '
            'folder of its own.'
        )


def read_annotated(directory: str | pathlib.Path = ANNOTATED) -> tuple[MapSample, np.ndarray]:
    """Read labelled maps.

    Args:
      directory: A folder with MAPS_FILE and LABELS_FILE, as `page.serve` leaves it. The default
        is the set of the classifier that ships.

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
            'tools.patterns.page.serve(maps, folder / LABELS_FILE) shows in a browser.'
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
