"""How the states of a text's tokens become one vector, its embedding; the record and its files.

A folder of sentence-transformers says so in `modules.json` and in the files that this names. Names
of ways to pool are theirs, too (Reimers and Gurevych 2019, section 3).
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from bert_secrets_jax.checks import check_name, shortened
from bert_secrets_jax.files import of_kind, read_json, write_atomically

MEAN, CLS, MAX = 'mean', 'cls', 'max'
ROOT, WEIGHTED, LAST = 'mean_sqrt_len_tokens', 'weightedmean', 'lasttoken'
MODES = (CLS, MAX, MEAN, ROOT, WEIGHTED, LAST)
# Files before version 6 have a switch for each, and join those that are on in this order.
_SWITCHES = {
    'pooling_mode_cls_token': CLS,
    'pooling_mode_max_tokens': MAX,
    'pooling_mode_mean_tokens': MEAN,
    'pooling_mode_mean_sqrt_len_tokens': ROOT,
    'pooling_mode_weightedmean_tokens': WEIGHTED,
    'pooling_mode_lasttoken': LAST,
}
_MODULES, _TOKENIZER = 'modules.json', 'tokenizer_config.json'
# The length has stood in these files, from the newest to the oldest.
_LENGTHS = tuple(
    f'sentence_{kind}_config.json'
    for kind in ('bert', 'roberta', 'distilbert', 'camembert', 'albert', 'xlm-roberta', 'xlnet')
)
_NO_LENGTH = 1_000_000
_PROMPTS = 'config_sentence_transformers.json'
_TYPE = 'sentence_transformers.models.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pooling:
    """How the states of a text's tokens become its embedding.

    Attributes:
      modes: One or more of 'mean', 'cls' (the first token), 'max', 'mean_sqrt_len_tokens' (the sum,
        divided by the root of their number), 'weightedmean' (later tokens weigh more, in proportion
        to their place) and 'lasttoken'. Vectors of several are joined.
      normalised: Whether embeddings have length 1.
      max_length: The greatest number of tokens; longer texts are cut. None is that of the model.
      lower: Whether texts are put into lower case first.
      prompts: Names, and the words that each puts before a text.
      prompt: The name of the prompt that texts get unless told otherwise; None for none.
      refused: The part of a model of sentence-transformers that is not implemented; '' for none.
    """

    modes: tuple[str, ...] = (MEAN,)
    normalised: bool = False
    max_length: int | None = None
    lower: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    prompt: str | None = None
    refused: str = ''

    def __post_init__(self):
        for mode in self.modes or ('',):
            check_name('pooling', mode, MODES)

    @property
    def reads_first(self) -> bool:
        """Whether the embedding is made from the first token alone."""
        return self.modes == (CLS,)

    def before(self, prompt: str | None) -> str:
        """Return the words before each text, by the name of a prompt, or the words themselves.

        ValueError for a single word that is no name: a prompt ends with a space or a colon.
        """
        name, known = self.prompt if prompt is None else prompt, dict(self.prompts)
        if name and name not in known and re.fullmatch(r'[A-Za-z0-9_-]+', name):
            named = f'its prompts are {", ".join(map(repr, known))}' if known else 'it has none'
            raise ValueError(
                f'The model has no prompt called {name!r} ({named}). Words of your own end with a '
                f"space or a colon: '{name}: '."
            )
        return known.get(name or '', name or '')


def read_pooling(directory: pathlib.Path) -> Pooling | None:
    """Return how a folder of sentence-transformers pools; None for another folder.

    A part that is not implemented, such as a dense layer, is noted: the encoder can be used without
    it, and its embeddings cannot. ValueError for files that are damaged, with their names.
    """
    if not (directory / _MODULES).exists():
        return None
    modules = _json(directory / _MODULES, list)
    about: dict[str, Any] = {}
    for place, module in enumerate(modules):
        if not isinstance(module, dict) or not isinstance(module.get('type'), str):
            raise ValueError(f'{directory / _MODULES}: module {place} has no type.')
        kind, path = module['type'].split('.')[-1], str(module.get('path', ''))
        inside = path and path[0] != '/' and '..' not in pathlib.PurePosixPath(path).parts
        if kind == 'Pooling' and 'modes' not in about and inside:
            about |= _read_modes(directory / path / 'config.json')
        elif kind == 'Normalize' and 'modes' in about:
            about['normalised'] = True
        elif kind != 'Transformer' or place or path:
            about['refused'] = f'{path or place} ({kind})'
    if 'modes' not in about:
        about.setdefault('refused', 'no pooling')
    file = next((each for each in _LENGTHS if (directory / each).exists()), None)
    values = {} if file is None else _json(directory / file, dict)
    about['lower'] = bool(values.get('do_lower_case'))
    longest, named = values.get('max_seq_length'), f'{file}: max_seq_length'
    if longest is None and (directory / _TOKENIZER).exists():
        # Where version 6 writes it; a number beyond all lengths stands for none.
        longest = _json(directory / _TOKENIZER, dict).get('model_max_length')
        named = f'{_TOKENIZER}: model_max_length'
        longest = None if isinstance(longest, float) or (longest or 0) > _NO_LENGTH else longest
    if longest is not None and (not isinstance(longest, int) or longest < 2):
        raise ValueError(f'{directory / named}={shortened(longest)}.')
    about['max_length'] = longest
    if (directory / _PROMPTS).exists():
        values = _json(directory / _PROMPTS, dict)
        prompts, name = values.get('prompts') or {}, values.get('default_prompt_name')
        if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
            raise ValueError(f'{directory / _PROMPTS}: prompts must be names and texts.')
        check_name(f'{directory / _PROMPTS}: default_prompt_name', name, (None, *prompts))
        about |= {'prompts': tuple(prompts.items()), 'prompt': name}
    return Pooling(**about)


def write_pooling(directory: pathlib.Path, pooling: Pooling | None, width: int) -> None:
    """Write the files from which sentence-transformers makes the same embeddings."""
    if pooling is None or pooling.refused:
        return
    names = ['Transformer', 'Pooling', 'Normalize'][: 2 + pooling.normalised]
    paths = ['', '1_Pooling', '2_Normalize']
    modules = [
        {'idx': place, 'name': str(place), 'path': path, 'type': f'{_TYPE}{name}'}
        for place, (name, path) in enumerate(zip(names, paths, strict=False))
    ]
    switches: dict[str, Any] = {switch: mode in pooling.modes for switch, mode in _SWITCHES.items()}
    # Switches say nothing of the order.
    if len(pooling.modes) > 1:
        switches['pooling_mode'] = list(pooling.modes)
    (directory / '1_Pooling').mkdir(exist_ok=True)
    for file, values in {
        _MODULES: modules,
        '1_Pooling/config.json': {'word_embedding_dimension': width} | switches,
        _LENGTHS[0]: {'max_seq_length': pooling.max_length, 'do_lower_case': pooling.lower},
        _PROMPTS: {'prompts': dict(pooling.prompts), 'default_prompt_name': pooling.prompt},
    }.items():
        write_atomically(directory / file, (json.dumps(values, indent=2) + '\n').encode())


def _read_modes(file: pathlib.Path) -> dict[str, Any]:
    values: Mapping[str, Any] = _json(file, dict)
    modes = values.get('pooling_mode')
    if modes is None:
        modes = [mode for switch, mode in _SWITCHES.items() if values.get(switch)] or [MEAN]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not all(mode in MODES for mode in modes):
        raise ValueError(f'{file}: pooling_mode={shortened(modes)} must be of {", ".join(MODES)}.')
    # Without their prompts, texts of such a model have no other embedding.
    whole = values.get('include_prompt', True) is not False
    return {'modes': tuple(modes)} | ({} if whole else {'refused': 'include_prompt=false'})


def _json(file: pathlib.Path, kind: type) -> Any:
    return of_kind(read_json(file), kind, f'{file}: ')
