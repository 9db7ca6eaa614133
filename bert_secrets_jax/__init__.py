# ruff: noqa: F401  (the imports under TYPE_CHECKING are the public names; see lazy.py)
"""Analyses of BERT's attention heads: what they do, which matter, and if published claims hold.

    import bert_secrets_jax as bs

    pretrained = bs.from_pretrained('all-MiniLM-L6-v2')
    batches = bs.encode(pretrained.tokenizer, bs.read_corpus('dev'))
    tables = bs.collect(pretrained, batches, {'sep': bs.statistics.to_sep})
    tables['sep'].mean  # [layer, head]

Every name is loaded when it is first used. Masks, sweeps and more are in README.md.
"""

from typing import TYPE_CHECKING

from bert_secrets_jax import lazy

if TYPE_CHECKING:
    from bert_secrets_jax import analyses, paper, patterns, plots
    from bert_secrets_jax.ablation import masks
    from bert_secrets_jax.ablation.contexts import mean_contexts
    from bert_secrets_jax.ablation.embeddings import embed, similarities
    from bert_secrets_jax.ablation.masked_lm import MaskedLosses, masked_lm_losses
    from bert_secrets_jax.ablation.patched_metrics import Metric
    from bert_secrets_jax.ablation.patching import Patched, estimate_patches, patch
    from bert_secrets_jax.ablation.path_patching import PatchedPaths, patch_paths
    from bert_secrets_jax.ablation.resumable import sweep_examples
    from bert_secrets_jax.ablation.score_parts import (
        ScoreParts,
        distance_preferences,
        score_parts,
        sweep_parts,
    )
    from bert_secrets_jax.ablation.sequential import (
        Decided,
        replay_until_decided,
        sweep_until_decided,
    )
    from bert_secrets_jax.ablation.sweep import Swept, sweep, sweep_batches
    from bert_secrets_jax.analyses import verdicts as claims
    from bert_secrets_jax.compute import Compute, enable_cache
    from bert_secrets_jax.contributions.attention_maps import attention_maps
    from bert_secrets_jax.contributions.norms import norms_of_heads, shares_of_norms
    from bert_secrets_jax.contributions.scores import TokenScores, token_scores
    from bert_secrets_jax.contributions.token_pairs import PairedTokens, paired_tokens
    from bert_secrets_jax.data.annotation import (
        Annotation,
        Link,
        Span,
        read_annotations,
        write_annotations,
    )
    from bert_secrets_jax.data.corpus import read_corpus, search_sample, similarity_sample
    from bert_secrets_jax.data.encoding import Batch, LabelledBatch, bucket, encode, mark, tokenize
    from bert_secrets_jax.data.framenet import framenet_sample, read_framenet, read_framenet_sample
    from bert_secrets_jax.data.glue import prepare_tfds, read_glue, read_tfds
    from bert_secrets_jax.data.linguistics import annotate
    from bert_secrets_jax.data.masking import MaskedBatch, Masking, mask_words
    from bert_secrets_jax.data.pairs import MinimalPair, pairs_sample, read_pairs, read_search
    from bert_secrets_jax.data.questions import Question, read_questions
    from bert_secrets_jax.data.segments import read_segments
    from bert_secrets_jax.data.streams import stream_batches, stream_texts
    from bert_secrets_jax.data.tables import read_table
    from bert_secrets_jax.data.tagged import Tagged, read_conllu, read_tagged
    from bert_secrets_jax.data.tasks import (
        GLUE,
        Example,
        Task,
        draw,
        examples_of,
        first_texts,
        get_task,
        joined,
        unseen,
    )
    from bert_secrets_jax.data.treebank import (
        Parse,
        encode_parses,
        forms_of,
        read_treebank,
        read_treebanks,
        treebank_sample,
    )
    from bert_secrets_jax.finetune.config import FinetuneConfig
    from bert_secrets_jax.finetune.losses import task_loss
    from bert_secrets_jax.finetune.pairs import finetune_embedding
    from bert_secrets_jax.finetune.train import Finetuned, finetune
    from bert_secrets_jax.measure import catalogue, links, statistics
    from bert_secrets_jax.measure.catalogue import (
        Described,
        collect,
        compare,
        measure,
        measure_change,
    )
    from bert_secrets_jax.measure.tables import HeadTable, to_frame, top_heads
    from bert_secrets_jax.measure.token_maps import TokenMaps, to_bertviz
    from bert_secrets_jax.measure.words import named_words, word_maps
    from bert_secrets_jax.model.bert import Bert, BertOutput
    from bert_secrets_jax.model.config import BertConfig
    from bert_secrets_jax.model.embedding import Pooling
    from bert_secrets_jax.model.weights import (
        Pretrained,
        fingerprint,
        from_pretrained,
        save_pretrained,
        with_classifier,
        with_masked_lm,
        with_pooling,
    )
    from bert_secrets_jax.probes.train import ProbeConfig, train_probes
    from bert_secrets_jax.probes.vectors import Vectors, read_vectors
    from bert_secrets_jax.programs.api import Report, compare_runs, report
    from bert_secrets_jax.pruning.gates import GateConfig, Gated, train_gates
    from bert_secrets_jax.pruning.outliers import find_outliers, without_dimensions
    from bert_secrets_jax.pruning.removal import remove_heads, restore_heads, without_heads
    from bert_secrets_jax.pruning.shapley import Shapley, shapley_values
    from bert_secrets_jax.pruning.steps import nested_masks
    from bert_secrets_jax.report.explorer import Explorer
    from bert_secrets_jax.runs.folder import read_results
    from bert_secrets_jax.runs.result import Finding, Result
    from bert_secrets_jax.stats import significance

    __version__: str

_load, _listing, __all__ = lazy.attach(__name__, __file__)


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
