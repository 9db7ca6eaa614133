# ruff: noqa: F401  (editors read the imports under TYPE_CHECKING; nothing runs them)
"""Analyses of BERT's attention heads: what they do, which matter, and if published claims hold.

    import bert_secrets_jax as bs

    pretrained = bs.from_pretrained('all-MiniLM-L6-v2')
    batches = bs.encode(pretrained.tokenizer, bs.read_corpus('dev'))
    tables = bs.collect(pretrained, batches, {'sep': bs.statistics.to_sep})
    tables['sep'].mean  # [layer, head]

Every name is loaded when it is first used. Masks, sweeps and more are in README.md.
"""

import sys
import types
from typing import TYPE_CHECKING

from bert_secrets_jax import lazy

# Module to the public names that it holds. Editors read the same from the block below; a test
# compares the two.
_MEMBERS = {
    'ablation.contexts': ('mean_contexts',),
    'ablation.masked_lm': ('MaskedLosses', 'masked_lm_losses'),
    'ablation.precisions': ('TwicePrecise', 'sweep_in_two_precisions'),
    'ablation.resumable': ('sweep_examples',),
    'ablation.sweep': ('Swept', 'sweep', 'sweep_batches'),
    'cache': ('enable_cache',),
    'compute': ('Compute',),
    'contributions.maps': ('attention_maps',),
    'contributions.norms': ('norms_of_heads', 'shares_of_norms'),
    'contributions.decomposition': ('Decomposition', 'decompose'),
    'contributions.scores': ('TokenScores', 'token_scores'),
    'data.annotation': ('Annotation', 'Link', 'Span', 'read_annotations', 'write_annotations'),
    'data.corpus': ('read_corpus',),
    'data.encoding': ('Batch', 'bucket', 'encode', 'mark', 'tokenize'),
    'data.framenet': ('framenet_sample', 'read_framenet', 'read_framenet_sample'),
    'data.glue': ('prepare_tfds', 'read_glue', 'read_tfds'),
    'data.linguistics': ('annotate',),
    'data.masking': ('MaskedBatch', 'Masking', 'mask_words'),
    'data.questions': ('Question', 'read_questions'),
    'data.segments': ('read_segments',),
    'data.streams': ('stream_batches', 'stream_texts'),
    'data.tables': ('read_table',),
    'data.tagged': ('Tagged', 'read_conllu', 'read_tagged'),
    'data.tasks': ('GLUE', 'Example', 'Task', 'draw', 'get_task'),
    'data.treebank': ('Parse', 'encode_parses', 'read_treebank', 'treebank_sample'),
    'finetune.config': ('FinetuneConfig',),
    'finetune.train': ('Finetuned', 'finetune'),
    'measure.catalogue': ('Described', 'measure', 'measure_change'),
    'measure.collect': ('HeadTable', 'collect', 'compare'),
    'measure.maps': ('TokenMaps', 'to_bertviz'),
    'measure.tables': ('to_frame', 'top_heads'),
    'measure.words': ('named_words', 'word_maps'),
    'model.bert': ('Bert', 'BertOutput'),
    'model.config': ('BertConfig',),
    'model.fairseq': ('convert_fairseq',),
    'model.vocabulary': ('function_tokenizer', 'letter_tokenizer', 'regex_tokenizer'),
    'model.weights': (
        'Pretrained',
        'fingerprint',
        'from_pretrained',
        'save_pretrained',
        'with_classifier',
        'with_masked_lm',
    ),
    'probes.train': ('ProbeConfig', 'train_probes'),
    'probes.vectors': ('Vectors', 'read_vectors'),
    'programs.api': ('Report', 'report'),
    'programs.comparing': ('compare_runs',),
    'pruning.gates': ('Gated', 'GateConfig', 'train_gates'),
    'pruning.outliers': ('find_outliers', 'without_dimensions'),
    'pruning.removal': ('remove_heads', 'restore_heads'),
    'pruning.shapley': ('Shapley', 'shapley_values'),
    'pruning.steps': ('nested_masks',),
    'pruning.subnetworks': ('without_heads',),
    'pruning.timing': ('RemovalTimes', 'time_removal'),
    'report.explorer': ('Explorer',),
    'runs.result': ('Finding', 'Result'),
    'runs.results': ('read_results',),
}
# Public name to the module that it stands for.
_MODULES = {
    'analyses': 'analyses',
    'catalogue': 'measure.catalogue',
    'claims': 'analyses.verdicts',
    'links': 'measure.links',
    'masks': 'ablation.masks',
    'paper': 'paper',
    'patterns': 'patterns',
    'plots': 'plots',
    'significance': 'ablation.significance',
    'statistics': 'measure.statistics',
}

if TYPE_CHECKING:
    from bert_secrets_jax import analyses, paper, patterns, plots
    from bert_secrets_jax.ablation import masks, significance
    from bert_secrets_jax.ablation.contexts import mean_contexts
    from bert_secrets_jax.ablation.masked_lm import MaskedLosses, masked_lm_losses
    from bert_secrets_jax.ablation.precisions import TwicePrecise, sweep_in_two_precisions
    from bert_secrets_jax.ablation.resumable import sweep_examples
    from bert_secrets_jax.ablation.sweep import Swept, sweep, sweep_batches
    from bert_secrets_jax.analyses import verdicts as claims
    from bert_secrets_jax.cache import enable_cache
    from bert_secrets_jax.compute import Compute
    from bert_secrets_jax.contributions.decomposition import Decomposition, decompose
    from bert_secrets_jax.contributions.maps import attention_maps
    from bert_secrets_jax.contributions.norms import norms_of_heads, shares_of_norms
    from bert_secrets_jax.contributions.scores import TokenScores, token_scores
    from bert_secrets_jax.data.annotation import (
        Annotation,
        Link,
        Span,
        read_annotations,
        write_annotations,
    )
    from bert_secrets_jax.data.corpus import read_corpus
    from bert_secrets_jax.data.encoding import Batch, bucket, encode, mark, tokenize
    from bert_secrets_jax.data.framenet import (
        framenet_sample,
        read_framenet,
        read_framenet_sample,
    )
    from bert_secrets_jax.data.glue import prepare_tfds, read_glue, read_tfds
    from bert_secrets_jax.data.linguistics import annotate
    from bert_secrets_jax.data.masking import MaskedBatch, Masking, mask_words
    from bert_secrets_jax.data.questions import Question, read_questions
    from bert_secrets_jax.data.segments import read_segments
    from bert_secrets_jax.data.streams import stream_batches, stream_texts
    from bert_secrets_jax.data.tables import read_table
    from bert_secrets_jax.data.tagged import Tagged, read_conllu, read_tagged
    from bert_secrets_jax.data.tasks import GLUE, Example, Task, draw, get_task
    from bert_secrets_jax.data.treebank import (
        Parse,
        encode_parses,
        read_treebank,
        treebank_sample,
    )
    from bert_secrets_jax.finetune.config import FinetuneConfig
    from bert_secrets_jax.finetune.train import Finetuned, finetune
    from bert_secrets_jax.measure import catalogue, links, statistics
    from bert_secrets_jax.measure.catalogue import Described, measure, measure_change
    from bert_secrets_jax.measure.collect import HeadTable, collect, compare
    from bert_secrets_jax.measure.maps import TokenMaps, to_bertviz
    from bert_secrets_jax.measure.tables import to_frame, top_heads
    from bert_secrets_jax.measure.words import named_words, word_maps
    from bert_secrets_jax.model.bert import Bert, BertOutput
    from bert_secrets_jax.model.config import BertConfig
    from bert_secrets_jax.model.fairseq import convert_fairseq
    from bert_secrets_jax.model.vocabulary import (
        function_tokenizer,
        letter_tokenizer,
        regex_tokenizer,
    )
    from bert_secrets_jax.model.weights import (
        Pretrained,
        fingerprint,
        from_pretrained,
        save_pretrained,
        with_classifier,
        with_masked_lm,
    )
    from bert_secrets_jax.probes.train import ProbeConfig, train_probes
    from bert_secrets_jax.probes.vectors import Vectors, read_vectors
    from bert_secrets_jax.programs.api import Report, report
    from bert_secrets_jax.programs.comparing import compare_runs
    from bert_secrets_jax.pruning.gates import GateConfig, Gated, train_gates
    from bert_secrets_jax.pruning.outliers import find_outliers, without_dimensions
    from bert_secrets_jax.pruning.removal import remove_heads, restore_heads
    from bert_secrets_jax.pruning.shapley import Shapley, shapley_values
    from bert_secrets_jax.pruning.steps import nested_masks
    from bert_secrets_jax.pruning.subnetworks import without_heads
    from bert_secrets_jax.pruning.timing import RemovalTimes, time_removal
    from bert_secrets_jax.report.explorer import Explorer
    from bert_secrets_jax.runs.result import Finding, Result
    from bert_secrets_jax.runs.results import read_results

    __version__: str

_load, _listing, __all__ = lazy.attach(__name__, members=_MEMBERS, modules=_MODULES)


def __getattr__(name: str):
    if name != '__version__':
        return _load(name)
    import importlib.metadata

    try:
        return importlib.metadata.version(__name__)
    except importlib.metadata.PackageNotFoundError:
        return 'unknown'


def __dir__() -> list[str]:
    return sorted({*_listing(), '__version__'})


class _Package(types.ModuleType):
    """This package, in which `finetune`, `measure` and `report` stay functions.

    Folders of the same names hold what these functions are made of. Python binds a folder to its
    name here as soon as anything in it is imported, which would make the function depend on what
    was imported before. `from bert_secrets_jax.finetune import train` does not use that name.
    """

    def __setattr__(self, name, value):
        folder = isinstance(value, types.ModuleType) and value.__name__ == f'{__name__}.{name}'
        if not (folder and name in __all__ and name not in _MODULES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
