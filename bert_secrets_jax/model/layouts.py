"""How the checkpoints of each model type name their tensors."""

import dataclasses
import types
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the checkpoints of a model type name their tensors.

    Attributes:
      prefix: Prefix of every tensor except the classifier's, if the checkpoint has a head.
      modules: Our name of each module and theirs, in which '{}' stands for the number of the layer.
        Our layers are stacked on a leading axis.
      other_heads: Prefixes of the heads of other tasks, which are left out knowingly.
      shared_heads: Prefixes of what stands under the classifier and, in other checkpoints, under
        the head of another task.
      fused: A module of theirs that holds several of ours one after the other, and those.
      saves_frequencies: Whether the frequencies of rotary positions are among the tensors.
    """

    prefix: str
    modules: Mapping[str, str]
    other_heads: tuple[str, ...]
    shared_heads: tuple[str, ...] = ()
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    saves_frequencies: bool = False

    def left_out(self, names: Sequence[str]) -> set[str]:
        """Return the tensors of other heads among these, whose names have no prefix."""
        others = self.other_heads
        if not any(name.startswith(f'{self.modules["classifier"]}.') for name in names):
            others += self.shared_heads
        return {name for name in names if name.startswith(others)}

    def part(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Cut their modules into ours; what cannot be cut stays, and is then unexpected."""
        for theirs, ours in self.fused.items():
            for name in [name for name in tensors if f'.{theirs}.' in name]:
                if tensors[name].ndim and len(tensors[name]) % len(ours) == 0:
                    parts = np.split(tensors.pop(name), len(ours))
                    for part, tensor in zip(ours, parts, strict=True):
                        tensors[name.replace(theirs, part)] = tensor
        return tensors

    def fuse(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Join the modules of ours that are one of theirs."""
        for theirs, ours in self.fused.items():
            for name in [name for name in tensors if f'.{ours[0]}.' in name]:
                parts = [tensors.pop(name.replace(ours[0], part)) for part in ours]
                tensors[name.replace(ours[0], theirs)] = np.concatenate(parts)
        return tensors


_BERT = {
    'embeddings/word': 'embeddings.word_embeddings',
    'embeddings/position': 'embeddings.position_embeddings',
    'embeddings/token_type': 'embeddings.token_type_embeddings',
    'embeddings/norm': 'embeddings.LayerNorm',
    'layers/attention/query': 'encoder.layer.{}.attention.self.query',
    'layers/attention/key': 'encoder.layer.{}.attention.self.key',
    'layers/attention/value': 'encoder.layer.{}.attention.self.value',
    'layers/attention/output': 'encoder.layer.{}.attention.output.dense',
    'layers/attention_norm': 'encoder.layer.{}.attention.output.LayerNorm',
    'layers/intermediate': 'encoder.layer.{}.intermediate.dense',
    'layers/output': 'encoder.layer.{}.output.dense',
    'layers/output_norm': 'encoder.layer.{}.output.LayerNorm',
    'pooler': 'pooler.dense',
    'classifier': 'classifier',
}
_ALBERT = 'encoder.albert_layer_groups.{}.albert_layers.0'
_BERT_WITH_HEAD = _BERT | {'pooler': 'classifier.dense', 'classifier': 'classifier.out_proj'}
# No classifier stands on RoBERTa's pooler.
_ROBERTA = Layout('roberta.', _BERT_WITH_HEAD, ('lm_head.', 'qa_outputs.', 'pooler.'))
LAYOUTS: Mapping[str, Layout] = types.MappingProxyType(
    {
        'bert': Layout('bert.', _BERT, ('cls.', 'qa_outputs.')),
        'roberta': _ROBERTA,
        'xlm-roberta': _ROBERTA,
        'camembert': _ROBERTA,
        'distilbert': Layout(
            'distilbert.',
            {
                'embeddings/word': 'embeddings.word_embeddings',
                'embeddings/position': 'embeddings.position_embeddings',
                'embeddings/norm': 'embeddings.LayerNorm',
                'layers/attention/query': 'transformer.layer.{}.attention.q_lin',
                'layers/attention/key': 'transformer.layer.{}.attention.k_lin',
                'layers/attention/value': 'transformer.layer.{}.attention.v_lin',
                'layers/attention/output': 'transformer.layer.{}.attention.out_lin',
                'layers/attention_norm': 'transformer.layer.{}.sa_layer_norm',
                'layers/intermediate': 'transformer.layer.{}.ffn.lin1',
                'layers/output': 'transformer.layer.{}.ffn.lin2',
                'layers/output_norm': 'transformer.layer.{}.output_layer_norm',
                'pooler': 'pre_classifier',
                'classifier': 'classifier',
            },
            ('vocab_transform.', 'vocab_layer_norm.', 'vocab_projector.', 'qa_outputs.'),
        ),
        'electra': Layout(
            'electra.',
            _BERT_WITH_HEAD | {'embeddings/project': 'embeddings_project'},
            (
                'discriminator_predictions.',
                'generator_predictions.',
                'generator_lm_head.',
                'sequence_summary.',
                'qa_outputs.',
            ),
        ),
        'albert': Layout(
            'albert.',
            {name: module for name, module in _BERT.items() if name.startswith('embeddings/')}
            | {
                'embeddings/project': 'encoder.embedding_hidden_mapping_in',
                'layers/attention/query': f'{_ALBERT}.attention.query',
                'layers/attention/key': f'{_ALBERT}.attention.key',
                'layers/attention/value': f'{_ALBERT}.attention.value',
                'layers/attention/output': f'{_ALBERT}.attention.dense',
                'layers/attention_norm': f'{_ALBERT}.attention.LayerNorm',
                'layers/intermediate': f'{_ALBERT}.ffn',
                'layers/output': f'{_ALBERT}.ffn_output',
                'layers/output_norm': f'{_ALBERT}.full_layer_layer_norm',
                'pooler': 'pooler',
                'classifier': 'classifier',
            },
            ('predictions.', 'sop_classifier.', 'qa_outputs.'),
        ),
        'mpnet': Layout(
            'mpnet.',
            _BERT_WITH_HEAD
            | {
                'embeddings/relative_position': 'encoder.relative_attention_bias',
                'layers/attention/query': 'encoder.layer.{}.attention.attn.q',
                'layers/attention/key': 'encoder.layer.{}.attention.attn.k',
                'layers/attention/value': 'encoder.layer.{}.attention.attn.v',
                'layers/attention/output': 'encoder.layer.{}.attention.attn.o',
                'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
            },
            ('lm_head.', 'qa_outputs.', 'pooler.'),
        ),
        'esm': Layout(
            'esm.',
            _BERT_WITH_HEAD
            | {
                'embeddings/norm': 'embeddings.layer_norm',
                'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
                'layers/output_norm': 'encoder.layer.{}.LayerNorm',
                'final_norm': 'encoder.emb_layer_norm_after',
                'contact_head': 'contact_head.regression',
            },
            ('lm_head.', 'pooler.'),
            saves_frequencies=True,
        ),
        'modernbert': Layout(
            'model.',
            {
                'embeddings/word': 'embeddings.tok_embeddings',
                'embeddings/norm': 'embeddings.norm',
                'layers/attention/query': 'layers.{}.attn.query',
                'layers/attention/key': 'layers.{}.attn.key',
                'layers/attention/value': 'layers.{}.attn.value',
                'layers/attention/output': 'layers.{}.attn.Wo',
                'layers/attention_norm': 'layers.{}.attn_norm',
                'layers/intermediate': 'layers.{}.mlp.Wi',
                'layers/output': 'layers.{}.mlp.Wo',
                'layers/output_norm': 'layers.{}.mlp_norm',
                'final_norm': 'final_norm',
                'pooler': 'head.dense',
                'pooler_norm': 'head.norm',
                'classifier': 'classifier',
            },
            ('decoder.',),
            shared_heads=('head.',),
            fused={'attn.Wqkv': ('attn.query', 'attn.key', 'attn.value')},
        ),
    }
)
