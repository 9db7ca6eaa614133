"""What the attention heads of BERT do, which of them matter, and whether a published claim holds.

    import bert_secrets_jax as bs

    pretrained = bs.from_pretrained('all-MiniLM-L6-v2')
    batches = bs.encode(pretrained.tokenizer, bs.read_corpus('dev'))
    tables = bs.collect(
        pretrained.bert, pretrained.params, batches, {'sep': bs.statistics.to_sep}
    )
    tables['sep'].mean  # [layer, head]

Masks, sweeps and more are in README.md.
"""

from bert_secrets_jax import patterns
from bert_secrets_jax.ablation import masks
from bert_secrets_jax.ablation.sweep import sweep, sweep_batches
from bert_secrets_jax.data.annotation import (
    Annotation,
    Link,
    Span,
    read_annotations,
    write_annotations,
)
from bert_secrets_jax.data.corpus import read_corpus
from bert_secrets_jax.data.encoding import Batch, encode
from bert_secrets_jax.data.framenet import read_frame_sample, read_framenet, read_frames
from bert_secrets_jax.data.glue import prepare_tfds, read_glue, read_tfds
from bert_secrets_jax.data.linguistics import annotate
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import GLUE, Example, Task, get_task
from bert_secrets_jax.measure import links, statistics
from bert_secrets_jax.measure.collect import HeadTable, collect, compare
from bert_secrets_jax.measure.maps import TokenMaps, attention_maps, to_bertviz
from bert_secrets_jax.model.bert import Bert, BertOutput
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained, from_pretrained, save_pretrained
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.tables import read_results, to_frame

__all__ = [
    'GLUE',
    'Annotation',
    'Batch',
    'Bert',
    'BertConfig',
    'BertOutput',
    'Example',
    'Explorer',
    'HeadTable',
    'Link',
    'Pretrained',
    'Span',
    'Task',
    'TokenMaps',
    'annotate',
    'attention_maps',
    'collect',
    'compare',
    'encode',
    'from_pretrained',
    'get_task',
    'links',
    'masks',
    'patterns',
    'prepare_tfds',
    'read_annotations',
    'read_corpus',
    'read_frame_sample',
    'read_framenet',
    'read_frames',
    'read_glue',
    'read_results',
    'read_table',
    'read_tfds',
    'save_pretrained',
    'statistics',
    'sweep',
    'sweep_batches',
    'to_bertviz',
    'to_frame',
    'write_annotations',
]
