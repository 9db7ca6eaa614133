"""How the checkpoints of each model type name their tensors."""

import dataclasses
import re
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
      joined: A module of ours that holds several of theirs one after the other, and those.
      former: Patterns of names in older files, and what stands there today.
      formerly_fused: A module of older files that holds several of theirs, and those.
      sinusoids: The tensor of cosines and sines of rotary positions; '' without one.
      saves_frequencies: Whether the frequencies of rotary positions are among the tensors.
      not_legacy: How names begin if config.json says `legacy: false`, and how they do otherwise.
    """

    prefix: str
    encoder: Mapping[str, str]
    heads: Mapping[str, Mapping[str, str]]
    other_heads: tuple[str, ...] = ()
    second_bias: str = ''
    fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    joined: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    former: Mapping[str, str] = dataclasses.field(default_factory=dict)
    formerly_fused: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    saves_frequencies: bool = False
    sinusoids: str = ''
    not_legacy: Mapping[str, str] = dataclasses.field(default_factory=dict)

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
        """Make our modules of theirs; what does not fit stays, and is then unexpected."""
        return _join(_cut(tensors, {**self.fused, **self.formerly_fused}), self.joined)

    def fuse(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Make their modules of ours."""
        return _join(_cut(tensors, self.joined), self.fused)

    def renamed(self, name: str) -> str:
        """Return the name of today of a tensor, without the prefix."""
        name = name.removeprefix(self.prefix)
        for old, new in self.former.items():
            name = re.sub(old, new, name)
        return name


def _cut(tensors: dict[str, np.ndarray], whole: Mapping[str, tuple[str, ...]]):
    """Cut modules into their equal parts, where there are such modules that can be cut."""
    for module, parts in whole.items():
        for name in [name for name in tensors if f'.{module}.' in name]:
            if tensors[name].ndim and len(tensors[name]) % len(parts) == 0:
                cut = np.split(tensors.pop(name), len(parts))
                for part, tensor in zip(parts, cut, strict=True):
                    tensors[name.replace(module, part)] = tensor
    return tensors


def _join(tensors: dict[str, np.ndarray], whole: Mapping[str, tuple[str, ...]]):
    """Join parts to modules, where all of a module are there and have one shape."""
    for module, parts in whole.items():
        for name in [name for name in tensors if f'.{parts[0]}.' in name]:
            names = [name.replace(parts[0], part) for part in parts]
            if len({tensors[each].shape if each in tensors else None for each in names}) == 1:
                joined = np.concatenate([np.atleast_1d(tensors.pop(each)) for each in names])
                tensors[name.replace(parts[0], module)] = joined
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
_BERT_LM = _lm(
    'cls.predictions.transform.dense',
    'cls.predictions.transform.LayerNorm',
    'cls.predictions.decoder',
)
_WITH_POOLER = _heads(**_OF_CLASSIFIER, lm=_LM_HEAD)
# No classifier stands on RoBERTa's pooler.
_ROBERTA = Layout('roberta.', _BERT, _WITH_POOLER, ('pooler.',), 'lm_head.bias')
_JINA = 'encoder.layers.{}.mixer'
_ALBERT = 'encoder.albert_layer_groups.{}.albert_layers.0'
# As Llama has them, and many models after it.
_LLAMA = {
    f'layers/attention/{name}': f'layers.{{}}.self_attn.{name[0]}_proj'
    for name in ('query', 'key', 'value', 'output')
} | {'layers/intermediate': 'layers.{}.mlp.gate_and_up', 'layers/output': 'layers.{}.mlp.down_proj'}
_GATE_AND_UP = {'mlp.gate_and_up': ('mlp.gate_proj', 'mlp.up_proj')}
_EMBEDDINGS = {name: _BERT[name] for name in _BERT if name.startswith('embeddings/')}
_NOMIC = Layout(
    'nomic_bert.',
    _EMBEDDINGS | _LLAMA | {
        'layers/attention_norm': 'layers.{}.post_attention_layernorm',
        'layers/output_norm': 'layers.{}.post_mlp_layernorm',
        'pooler': 'pooler.dense',
    },
    _heads(lm=_BERT_LM | {'lm/norm': 'cls.predictions.transform.layer_norm'}),
    second_bias='cls.predictions.bias',
    joined=_GATE_AND_UP,
    # As the repositories of nomic-ai have them.
    former={
        r'^bert\.': '', r'^encoder\.layers\.': 'layers.', r'^emb_ln\.': 'embeddings.LayerNorm.',
        r'\.attn\.out_proj\.': '.self_attn.o_proj.', r'\.fc11\.': '.up_proj.',
        r'\.fc12\.': '.gate_proj.', r'\.fc2\.': '.down_proj.',
        r'\.norm1\.': '.post_attention_layernorm.', r'\.norm2\.': '.post_mlp_layernorm.',
    },
    formerly_fused={'attn.Wqkv': ('self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj')},
)  # fmt: skip
_MODERN = {'pooler': 'head.dense', 'pooler_norm': 'head.norm'}
_OF_BERT = Layout(
    'bert.',
    _BERT | {'pooler': 'pooler.dense'},
    _heads(lm=_BERT_LM),
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
        _EMBEDDINGS
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
    'deberta-v2': Layout(
        'deberta.',
        _BERT
        | {
            'embeddings/project': 'embeddings.embed_proj',
            'embeddings/distance': 'encoder.rel_embeddings',
            'embeddings/distance_norm': 'encoder.LayerNorm',
            'embeddings/conv': 'encoder.conv.conv',
            'layers/attention/query': 'encoder.layer.{}.attention.self.query_proj',
            'layers/attention/key': 'encoder.layer.{}.attention.self.key_proj',
            'layers/attention/value': 'encoder.layer.{}.attention.self.value_proj',
            'layers/attention/distance_key': 'encoder.layer.{}.attention.self.pos_key_proj',
            'layers/attention/distance_query': 'encoder.layer.{}.attention.self.pos_query_proj',
            'layers/conv_norm': 'encoder.conv.LayerNorm',
        },
        _heads(pooler='pooler.dense', lm=_BERT_LM),
        ('mask_predictions.', 'lm_predictions.'),
        'cls.predictions.bias',
        not_legacy={
            'lm_predictions.lm_head.bias': 'cls.predictions.bias',
            'lm_predictions.lm_head.': 'cls.predictions.transform.',
        },
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
    'nomic_bert': _NOMIC,
    'eurobert': Layout(
        'model.',
        _LLAMA
        | {
            'embeddings/word': 'embed_tokens',
            'layers/attention_norm': 'layers.{}.input_layernorm',
            'layers/output_norm': 'layers.{}.post_attention_layernorm',
            'final_norm': 'norm',
        },
        _heads(pooler='dense', lm=dict.fromkeys(('lm/decoder', 'lm'), 'lm_head')),
        joined=_GATE_AND_UP,
    ),
    'roformer': Layout(
        'roformer.',
        _BERT | {'embeddings/project': 'embeddings_project'},
        _heads(**_OF_CLASSIFIER, lm=_BERT_LM),
        ('pooler.', 'sequence_summary.'),
        'cls.predictions.bias',
        sinusoids='encoder.embed_positions.weight',
    ),
}
