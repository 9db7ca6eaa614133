"""Compiled programs that outlive the process."""

import os
import pathlib

# Shorter compilations are as quick as reading the file.
_WORTH_KEEPING_SECONDS = 0.3


def enable_cache(folder: str | os.PathLike | None = None) -> pathlib.Path:
    """Keep compiled programs on disk, so that what was compiled once is only read the next time.

    Without a folder, a cache that JAX already has is left as it is: set
    `$JAX_COMPILATION_CACHE_DIR` to have it elsewhere. `JAX_ENABLE_COMPILATION_CACHE=false` turns
    every cache off.
    The folder that is in use is returned, by default `~/.cache/bert_secrets_jax/compiled`.
    """
    import jax

    used = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None and used is not None:
        return pathlib.Path(used)
    folder = pathlib.Path(folder or '~/.cache/bert_secrets_jax/compiled').expanduser()
    jax.config.update('jax_compilation_cache_dir', str(folder))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', _WORTH_KEEPING_SECONDS)
    return folder
