"""Memory and speed of `bs.collect` over a corpus of a million sentences, and over a part of it.

    python -m benchmarks.corpus --sentences=1000000
    python -m benchmarks.corpus --table=GLUE/MNLI/dev_matched.tsv --text_a=sentence1 \\
        --text_b=sentence2

Sentences of random words are written into a file, and read from it as a stream. The model is as
small as a model can be, 2 layers of 2 heads and a width of 32 with random weights, so that reading
and tokenising show. Rows of a table, of which a part is the first ones, are read by the model
itself. Each size runs in a process of its own, whose peak of resident memory is the
kernel's (VmHWM). Device bytes are those of all arrays that JAX holds, the greatest sum that was
seen between two batches. Memory that grows with the corpus shows as a difference between the sizes.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import app, flags

import bert_secrets_jax as bs
from bert_secrets_jax.files import write_json

_MODEL = flags.DEFINE_string(
    'model', 'all-MiniLM-L6-v2', 'The model of a table; of sentences, its tokenizer alone.'
)
_TABLE = flags.DEFINE_string('table', None, 'A .tsv whose rows are measured, not sentences.')
_TEXT_A = flags.DEFINE_string('text_a', None, 'The column of its texts.')
_TEXT_B = flags.DEFINE_string('text_b', None, 'The column of its second texts.')
_SENTENCES = flags.DEFINE_integer('sentences', 1_000_000, 'How many sentences the corpus has.')
_PARTS = flags.DEFINE_list('parts', ['0.01', '1'], 'The shares of the corpus that are measured.')
_OUT = flags.DEFINE_string('out', None, 'A file for the numbers, as JSON.')
_FILE = flags.DEFINE_string('file', None, 'A file of texts: measures it in this process alone.')

_STATISTICS = ('[SEP]', 'entropy (nats)', 'previous token')
# Sentences that are made at a time.
_TOGETHER = 10_000


def write_sentences(path: pathlib.Path, count: int) -> None:
    """Write sentences of 3 to 20 words, and of up to 60 in one of fifty lines."""
    rng = np.random.default_rng(0)
    words = np.unique(' '.join(each.text_a for each in bs.read_corpus('train')).split())
    with path.open('w', encoding='utf-8') as file:
        for start in range(0, count, _TOGETHER):
            lines = min(_TOGETHER, count - start)
            long = rng.random(lines) < 0.02
            lengths = rng.integers(3, np.where(long, 61, 21))
            drawn = iter(rng.choice(words, lengths.sum()).tolist())
            file.writelines(' '.join(next(drawn) for _ in range(n)) + '\n' for n in lengths)


def write_rows(path: pathlib.Path, table: str | os.PathLike[str], part: float) -> None:
    """Write the header of a table, and a part of its rows, from the first on."""
    with open(table, encoding='utf-8', newline='\n') as file:
        rows = sum(1 for _ in file) - 1
        file.seek(0)
        with path.open('w', encoding='utf-8', newline='\n') as out:
            out.writelines(itertools.islice(file, 1 + round(part * rows)))


def tiny(model: bs.Pretrained) -> bs.Pretrained:
    """Return the smallest model with the tokenizer of another one."""
    from bert_secrets_jax.model.bert import Bert, init_params

    tokenizer = model.tokenizer
    bert = Bert(
        bs.BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=128,
        )
    )  # fmt: skip
    return bs.Pretrained(bert, init_params(bert, seed=0), tokenizer)


def measure(path: str) -> dict[str, float]:
    """Collect statistics over a file of texts, and return what that took."""
    import jax

    model = bs.from_pretrained(_MODEL.value)
    if _TABLE.value is None:
        model = tiny(model)
    texts = bs.stream_texts(path, text_a=_TEXT_A.value, text_b=_TEXT_B.value, bad_rows='skip')
    batches = bs.stream_batches(model.tokenizer, texts)
    held, shapes, rows = [0], set(), 0

    def watched():
        nonlocal rows
        for batch in batches:
            yield batch
            held.append(max(held.pop(), sum(array.nbytes for array in jax.live_arrays())))
            shapes.add(batch.input_ids.shape)
            rows += len(batch.input_ids)

    before = _resident('VmRSS')
    start, cpu = time.perf_counter(), time.process_time()
    tables = bs.collect(model, watched(), list(_STATISTICS))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    sentences = int(tables['[SEP]'].count)
    return {
        'sentences': sentences,
        'filler_rows': rows - sentences,
        'seconds': seconds,
        'processor_seconds': cpu,
        'sentences_per_second': sentences / seconds,
        'compiled_shapes': len(shapes),
        'resident_mb_before': before,
        'resident_mb_peak': _resident('VmHWM'),
        'device_mb': held[0] / 1e6,
        'device': jax.devices()[0].device_kind,
        'entropy': float(tables['entropy (nats)'].mean.mean()),
    }


def _resident(name: str) -> float:
    """Return a size of this process from the kernel, in MB."""
    lines = pathlib.Path('/proc/self/status').read_text().splitlines()
    (size,) = [line.split()[1] for line in lines if line.startswith(f'{name}:')]
    return int(size) * 1024 / 1e6


def main(_):
    if _FILE.value:
        print(json.dumps(measure(_FILE.value)))
        return
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for part in map(float, _PARTS.value):
            if _TABLE.value is None:
                path = pathlib.Path(folder) / f'{part}.txt'
                write_sentences(path, round(part * _SENTENCES.value))
            else:
                path = pathlib.Path(folder) / f'{part}.tsv'
                write_rows(path, _TABLE.value, part)
            child = subprocess.run(
                [sys.executable, '-m', 'benchmarks.corpus', f'--file={path}', *sys.argv[1:]],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found.append(json.loads(child.stdout) | {'file_mb': path.stat().st_size / 1e6})
            path.unlink()
    print(f'{"sentences":>10}{"file MB":>9}{"RSS MB before":>15}{"peak":>7}{"device MB":>11}'
          f'{"shapes":>8}{"seconds":>9}{"sentences/s":>13}{"per CPU s":>11}')  # fmt: skip
    for each in found:
        print(
            f'{each["sentences"]:10d}{each["file_mb"]:9.1f}{each["resident_mb_before"]:15.0f}'
            f'{each["resident_mb_peak"]:7.0f}{each["device_mb"]:11.2f}'
            f'{each["compiled_shapes"]:8d}{each["seconds"]:9.1f}'
            f'{each["sentences_per_second"]:13.0f}'
            f'{each["sentences"] / each["processor_seconds"]:11.0f}'
        )
    if _OUT.value:
        write_json(pathlib.Path(_OUT.value), found)


if __name__ == '__main__':
    app.run(main)
