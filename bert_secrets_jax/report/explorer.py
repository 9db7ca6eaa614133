"""An explorer of attention maps: one fragment of HTML, for the report and for notebooks."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.checks import check_enough, check_numbers, check_shape
from bert_secrets_jax.measure.token_maps import GLOSSES, TokenMaps
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.templates import render


@dataclasses.dataclass(frozen=True)
class Explorer:
    """The maps of all heads on some sentences, of one model, or of two and their difference.

        bs.Explorer({'as it is': bs.attention_maps(pretrained, examples)})

    In a notebook this shows all heads of a sentence. A click, or Enter, opens one head with its
    tokens, its numbers and the notes about it. Switches show maps between whole words, and further
    kinds of maps and scores of tokens (`attention_maps`). Nothing is requested from anywhere. A
    weight is stored in one byte, as a share of the greatest of its map, and so is the difference of
    a second model. Errors are at most that maximum / 510, and / 254 for differences.

    Attributes:
      maps: The maps of each sentence, by the name of the model. A second model is compared with the
        first.
      notes: Notes about the heads, by their names: texts or numbers [L, N]. Empty texts and NaN are
        left out.
      address: The text before the name of a head in the address of a page, where #L6-H5 opens that
        head, such as 'mrpc-'. None leaves the address alone, as in notebooks.

    Raises:
      ValueError: There is nothing to show, or the maps and the notes do not fit each other.
      TypeError: The maps are not in a dictionary of lists.
    """

    maps: Mapping[str, Sequence[TokenMaps]]
    notes: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    address: str | None = None

    def __post_init__(self):
        if not isinstance(self.maps, Mapping):
            raise TypeError("An explorer takes maps by the name of their model: {'MiniLM': maps}.")
        if len(self.maps) not in (1, 2):
            raise ValueError(f'An explorer shows one model or two, got {len(self.maps)}.')
        if any(isinstance(sentences, TokenMaps) for sentences in self.maps.values()):
            raise TypeError('An explorer takes a list of maps for each model, one per sentence.')
        first = next(iter(self.maps.values()))
        check_enough('sentences', first)
        shape = dict(zip(('layers', 'heads'), self._shape, strict=True))
        tokens = [list(each.tokens) for each in first]
        for model, sentences in self.maps.items():
            if [list(each.tokens) for each in sentences] != tokens:
                raise ValueError(f'{model} has maps of other tokens: give both the same sentences.')
            for each in sentences:
                check_shape(f'Each map of {model}', each.attentions[:, :, 0, 0], **shape)
                if any(np.min(of) < 0 or not np.max(of) <= 1.0001 for of in _kinds(each).values()):
                    raise ValueError(f'Attention is from 0 to 1, that of {model} is not.')
                for method, values in each.scores.items():
                    check_numbers(f'The scores of {model} by {method}', values)
        for name, values in self.notes.items():
            check_shape(f'The note {name!r}', values, **shape)

    @property
    def _shape(self) -> tuple[int, int]:
        return next(iter(self.maps.values()))[0].attentions.shape[:2]

    def html(self) -> str:
        """Return the fragment. Its style and its script do not affect the rest of the page."""
        every = [maps for of_model in self.maps.values() for maps in of_model]
        # Kinds that all sentences have: there is one switch for all of them.
        kinds = [kind for kind in _kinds(every[0]) if all(kind in _kinds(maps) for maps in every)]
        scored = [
            (model, method)
            for model, of_model in enumerate(self.maps.values())
            for method in of_model[0].scores
            if all(method in maps.scores for maps in of_model)
        ]
        sentences = [
            {
                'tokens': list(map(visible, of_models[0].tokens)),
                'kinds': [_stored([_kinds(maps)[kind] for maps in of_models]) for kind in kinds],
                'word': _words(of_models[0]),
                'words': list(map(visible, of_models[0].words or ())),
                'scores': [
                    [float(f'{value:.4g}') for value in of_models[model].scores[method]]
                    for model, method in scored
                ],
                'predictions': [visible(maps.prediction) for maps in of_models],
            }
            for of_models in zip(*self.maps.values(), strict=True)
        ]
        values = {
            'shape': self._shape,
            'address': self.address,
            'models': list(map(visible, self.maps)),
            'kinds': list(map(visible, kinds)),
            'scored': [(model, visible(method)) for model, method in scored],
            'glosses': [GLOSSES.get(method, '') for _, method in scored],
            'sentences': sentences,
            'notes': sorted(
                (
                    [visible(name), [_text(value) for value in np.ravel(values)]]
                    for name, values in self.notes.items()
                ),
                key=_telling,
            ),
        }
        return render('explorer.html', values=values)

    def _repr_html_(self) -> str:
        return self.html()


def _kinds(maps: TokenMaps) -> dict[str, np.ndarray]:
    """Return all maps [L, N or 1, T, T] of a sentence by their kind."""
    return {'weights': maps.attentions, **maps.further}


def _stored(of_models: Sequence[np.ndarray]) -> dict[str, list]:
    """Return the maps of the first model, and what the second adds, as bytes with their units."""
    first, *second = map(np.asarray, of_models)
    # The difference of two rounded maps would be noise where the models differ little.
    kept = [(first, 0, 255), *[(values - first, 128, 127) for values in second]]
    stored: dict[str, list] = {'maps': [], 'greatest': []}
    for values, zero, steps in kept:
        greatest = np.abs(values).max(axis=(-2, -1), keepdims=True)
        shares = values / np.where(greatest > 0, greatest, 1)
        in_bytes = np.rint(zero + steps * shares).astype(np.uint8)
        stored['maps'].append(base64.b64encode(in_bytes.tobytes()).decode())
        stored['greatest'].append(greatest.ravel().round(6).tolist())
    return stored


def _telling(note: Sequence) -> tuple[int, bool]:
    """Return the place of a note: first what few heads have, then words, then numbers."""
    _, texts = note
    said = list(filter(None, texts))
    return len(said), any(text[0] in '+-.0123456789' for text in said)


def _words(maps: TokenMaps) -> list[int]:
    """Return the number of the word of each token; none if every token is a word."""
    if maps.word is None or maps.words is None or len(maps.words) == len(maps.tokens):
        return []
    return np.asarray(maps.word).tolist()


def _text(value) -> str:
    if isinstance(value, str):
        return visible(str(value))
    return '' if np.isnan(value) else f'{value:.3g}'
