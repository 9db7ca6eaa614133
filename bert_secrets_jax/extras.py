"""Packages that only an extra of the installation brings, and the sentence that says which one."""

import importlib.util

# The extras by the packages as they are imported; setup.py says what else an extra brings. Flax
# itself asks for Orbax, which lacks only where somebody has removed it.
EXTRAS = {
    'orbax': 'train',
    'array_record': 'glue',
    'tensorflow_datasets': 'glue',
    'spacy': 'words',
    'matplotlib': 'plots',
    'sklearn': 'report',
    'nltk': 'framenet',
}


def require(*packages: str) -> None:
    """Raise ModuleNotFoundError, with the command, if packages of extras are not installed."""
    missing = [name for name in packages if name in EXTRAS and not importlib.util.find_spec(name)]
    if missing:
        extras = ','.join(dict.fromkeys(EXTRAS[name] for name in missing))
        raise ModuleNotFoundError(
            f"{' and '.join(missing)} must be installed: pip install 'bert_secrets_jax[{extras}]'",
            name=missing[0],
        )
