"""Looks for ways through the reader of pickles: `python -m tests.fuzz.coverage --seconds=60`.

It takes atheris, which watches what code the mutants reach. No other part of the project needs it.
"""

import argparse
import importlib.util
import os
import pathlib
import sys
import tempfile

from tests.fuzz import pickles
from tests.fuzz.checkpoints import state_dict
from tests.fuzz.target import MARKER


def main() -> None:
    """Fuzz `torch_bin.load` until the time is up or something else than a refusal is raised."""
    parser = argparse.ArgumentParser(prog='python -m tests.fuzz.coverage', description=__doc__)
    parser.add_argument('--seconds', type=int, default=60, help='(default: 60)')
    arguments = parser.parse_args()
    if importlib.util.find_spec('atheris') is None:
        raise SystemExit('This takes atheris, which is not installed: pip install atheris')
    import atheris

    with atheris.instrument_imports(
        include=['bert_secrets_jax.model.torch_bin', 'pickle', 'zipfile']
    ):
        from bert_secrets_jax.model import torch_bin

    folder = pathlib.Path(tempfile.mkdtemp(prefix='fuzz-coverage-'))
    corpus = folder / 'corpus'
    corpus.mkdir()
    tensors = {name: tensor for name, tensor in state_dict(0).items() if name.startswith('class')}
    for is_legacy, write in ((False, pickles.zipped), (True, pickles.legacy)):
        opcodes = pickles.dict_opcodes(pickles.opcodes_of(tensors, is_legacy))
        data = write(opcodes, pickles.storages_of(tensors))
        (corpus / f'valid-{is_legacy}').write_bytes(data)
        for number, hostile in enumerate(pickles.HOSTILE.values()):
            data = write(b'\x80\x04' + hostile + b'.', {})
            (corpus / f'hostile-{is_legacy}-{number}').write_bytes(data)
    os.chdir(folder)
    file = folder / pickles.FILE

    def read(data: bytes) -> None:
        file.write_bytes(data)
        try:
            torch_bin.load(file)
        except ValueError as error:
            if file.name not in str(error):
                raise
        if pathlib.Path(MARKER).exists():
            raise AssertionError('something was executed')

    limits = [f'-max_total_time={arguments.seconds}', '-timeout=10', '-rss_limit_mb=4096']
    atheris.Setup([sys.argv[0], *limits, '-max_len=20000', str(corpus)], read)
    print(f'What fails is left in {folder}.')
    atheris.Fuzz()


if __name__ == '__main__':
    main()
