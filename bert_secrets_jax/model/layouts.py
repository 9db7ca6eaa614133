"""How the checkpoints of each model type name their tensors."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.model.config import MASKED_LM, QUESTIONS, SEQUENCES, TOKENS


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the checkpoints of a model type name their tensors.

    Attributes:
      prefix: Prefix of every tensor except the head's, if the checkpoint has a head.
      encoder: Our name of each module and theirs, in which '{}' stands for the number of the layer.
      heads: The same for each of `config.HEADS`, without those of the encoder.
      other_heads: Prefixes of heads that are not implemented, which are left out knowingly.
      second_bias: The second name of the bias of a masked LM; '' if it has one name.
      fused: A module of theirs that holds several of ours one after the other, and those.
      saves_frequencies: Whether the frequencies of rotary positions are among the tensors.
    """

    prefix: str
    encoder: Mapping[str, str]
    heads: Mapping[str, Mapping[str, str]]
    other_heads: tuple[str, ...] = ()
    second_bias: str = ''
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    saves_frequencies: bool = False

    def modules(self, head: str) -> dict[str, str]:
        """Return our name of each module and theirs, of the encoder and of one head."""
        return {**self.encoder, **self.heads.get(head, {})}

    def is_of(self, head: str, name: str) -> bool:
        """Return whether a tensor, named without the prefix, is of a head."""
        modules = self.heads.get(head, {}).values()
        return name.startswith(tuple(f'{module}.' for module in modules)) or (
            head == MASKED_LM and name == self.second_bias
        )

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
}


def _heads(
    *, pooler: str = '', classifier: str = 'classifier', lm: Mapping[str, str]
) -> dict[str, Mapping[str, str]]:
    """Return the names of all heads; `pooler` is '' where it is no part of the classifier."""
    under = {'pooler': pooler} if pooler else {}
    return {
        SEQUENCES: under | {'classifier': classifier},
        TOKENS: {'classifier': 'classifier'},
        QUESTIONS: {'classifier': 'qa_outputs'},
        MASKED_LM: lm,
    }


def _lm(dense: str, norm: str, decoder: str) -> dict[str, str]:
    return {'lm/dense': dense, 'lm/norm': norm, 'lm/decoder': decoder, 'lm': decoder}


_OF_CLASSIFIER = {'pooler': 'classifier.dense', 'classifier': 'classifier.out_proj'}
_LM_HEAD = _lm('lm_head.dense', 'lm_head.layer_norm', 'lm_head.decoder')
_WITH_POOLER = _heads(**_OF_CLASSIFIER, lm=_LM_HEAD)
# No classifier stands on RoBERTa's pooler.
_ROBERTA = Layout('roberta.', _BERT, _WITH_POOLER, ('pooler.',), 'lm_head.bias')
_JINA = 'encoder.layers.{}.mixer'
_ALBERT = 'encoder.albert_layer_groups.{}.albert_layers.0'
_MODERN = {'pooler': 'head.dense', 'pooler_norm': 'head.norm'}
_OF_BERT = Layout(
    'bert.',
    _BERT | {'pooler': 'pooler.dense'},
    _heads(
        lm=_lm(
            'cls.predictions.transform.dense',
            'cls.predictions.transform.LayerNorm',
            'cls.predictions.decoder',
        )
    ),
    ('cls.seq_relationship.',),
    'cls.predictions.bias',
)
LAYOUTS: Mapping[str, Layout] = {
    'bert': _OF_BERT,
    'roberta': _ROBERTA,
    'xlm-roberta': _ROBERTA,
    'camembert': _ROBERTA,
    'data2vec-text': dataclasses.replace(_ROBERTA, prefix='data2vec_text.'),
    'ernie': dataclasses.replace(
        _OF_BERT,
        prefix='ernie.',
        encoder={**_OF_BERT.encoder, 'embeddings/task_type': 'embeddings.task_type_embeddings'},
    ),
    'jina_bert': dataclasses.replace(
        _OF_BERT,
        encoder={
            **_OF_BERT.encoder,
            'layers/intermediate': 'encoder.layer.{}.mlp.gated_layers',
            'layers/output': 'encoder.layer.{}.mlp.wo',
            'layers/output_norm': 'encoder.layer.{}.mlp.layernorm',
        },
    ),
    'jina_embeddings_v3': dataclasses.replace(
        _ROBERTA,
        encoder=_BERT
        | {
            'embeddings/norm': 'emb_ln',
            'layers/attention/query': f'{_JINA}.query',
            'layers/attention/key': f'{_JINA}.key',
            'layers/attention/value': f'{_JINA}.value',
            'layers/attention/output': f'{_JINA}.out_proj',
            'layers/attention_norm': 'encoder.layers.{}.norm1',
            'layers/intermediate': 'encoder.layers.{}.mlp.fc1',
            'layers/output': 'encoder.layers.{}.mlp.fc2',
            'layers/output_norm': 'encoder.layers.{}.norm2',
        },
        fused={'mixer.Wqkv': ('mixer.query', 'mixer.key', 'mixer.value')},
    ),
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
        },
        _heads(
            pooler='pre_classifier',
            lm=_lm('vocab_transform', 'vocab_layer_norm', 'vocab_projector'),
        ),
    ),
    'electra': Layout(
        'electra.',
        _BERT | {'embeddings/project': 'embeddings_project'},
        _heads(
            **_OF_CLASSIFIER,
            lm=_lm(
                'generator_predictions.dense',
                'generator_predictions.LayerNorm',
                'generator_lm_head',
            ),
        ),
        ('discriminator_predictions.', 'sequence_summary.'),
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
        },
        _heads(lm=_lm('predictions.dense', 'predictions.LayerNorm', 'predictions.decoder')),
        ('sop_classifier.',),
        'predictions.bias',
    ),
    'mpnet': Layout(
        'mpnet.',
        _BERT
        | {
            'embeddings/relative_position': 'encoder.relative_attention_bias',
            'layers/attention/query': 'encoder.layer.{}.attention.attn.q',
            'layers/attention/key': 'encoder.layer.{}.attention.attn.k',
            'layers/attention/value': 'encoder.layer.{}.attention.attn.v',
            'layers/attention/output': 'encoder.layer.{}.attention.attn.o',
            'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
        },
        _WITH_POOLER,
        ('pooler.',),
        'lm_head.bias',
    ),
    'esm': Layout(
        'esm.',
        _BERT
        | {
            'embeddings/norm': 'embeddings.layer_norm',
            'layers/attention_norm': 'encoder.layer.{}.attention.LayerNorm',
            'layers/output_norm': 'encoder.layer.{}.LayerNorm',
            'final_norm': 'encoder.emb_layer_norm_after',
            'contact_head': 'contact_head.regression',
        },
        _heads(**_OF_CLASSIFIER, lm=_LM_HEAD | {'lm': 'lm_head'}),
        ('pooler.',),
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
        },
        dict.fromkeys((SEQUENCES, TOKENS, QUESTIONS), _MODERN | {'classifier': 'classifier'})
        | {MASKED_LM: _MODERN | {'lm/decoder': 'decoder', 'lm': 'decoder'}},
        fused={'attn.Wqkv': ('attn.query', 'attn.key', 'attn.value')},
    ),
}
