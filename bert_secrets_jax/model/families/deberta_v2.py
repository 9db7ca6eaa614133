"""DeBERTa v2 and v3 (He et al. 2021): scores of three parts, for content and for distance.

The parts are in `positions.disentangled`; most models have no embeddings of positions besides, and
no segments. Embeddings are projected before LayerNorm, and those of padding are 0. A convolution
over the embeddings may be added to the first layer (v2-xlarge). The layer under the classifier is a
part of it, with GELU.
"""

from dataclasses import replace
from typing import Any

from bert_secrets_jax.checks import shortened
from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.family import OURS
from bert_secrets_jax.model.names import SCORE_PARTS
from bert_secrets_jax.ranges import Range

_ATTENTION = 'encoder.layer.{}.attention.self'
_WIDTHS = Range(1, 100_000)


def _modernise(values: dict[str, Any], problems: list[str]) -> None:
    """Make parts of scores a tuple, and refuse widths of heads and of the pooler of their own."""
    kinds = values.pop('pos_att_type', None)
    kinds = [] if kinds in (None, '') else kinds
    if isinstance(kinds, str):
        kinds = [kind.strip() for kind in kinds.lower().split('|')]
    known = SCORE_PARTS[1:]
    if isinstance(kinds, list) and all(isinstance(kind, str) and kind in known for kind in kinds):
        values['pos_att_type'] = tuple(kind for kind in known if kind in kinds)
    else:
        problems.append(f'pos_att_type={shortened(kinds)} must name some of {known}')
    width, heads = values.get('hidden_size'), values.get('num_attention_heads')
    for key, count in (('pooler_hidden_size', 1), ('attention_head_size', heads)):
        size = values.pop(key, None)
        sizes = all(each in _WIDTHS for each in (size, count, width))
        if size is not None and not (sizes and size * count == width):
            problems.append(f'{key}={shortened(size)} is not implemented')


FAMILY = replace(
    BERT,
    model_type='deberta-v2',
    name='DebertaV2',
    projects_first=True,
    zero_padding=True,
    pooler_act='gelu',
    pooler_is_of_classifier=True,
    pruned_key=OURS,
    reads=tuple(
        """embedding_size relative_attention position_buckets max_relative_positions
        pos_att_type share_att_key norm_rel_ebd position_biased_input conv_kernel_size
        conv_groups conv_act""".split()
    ),
    keys={'classifier_dropout': 'cls_dropout'},
    modernise=_modernise,
    defaults={'type_vocab_size': 0, 'layer_norm_eps': 1e-7},
    must_be={'pooler_hidden_act': ('gelu',), 'pooler_dropout': (0,)},
    ignored=('legacy',),
    prefix='deberta.',
    encoder=BERT.encoder
    | {
        'embeddings/project': 'embeddings.embed_proj',
        'embeddings/distance': 'encoder.rel_embeddings',
        'embeddings/distance_norm': 'encoder.LayerNorm',
        'embeddings/conv': 'encoder.conv.conv',
        'layers/attention/query': f'{_ATTENTION}.query_proj',
        'layers/attention/key': f'{_ATTENTION}.key_proj',
        'layers/attention/value': f'{_ATTENTION}.value_proj',
        'layers/attention/distance_key': f'{_ATTENTION}.pos_key_proj',
        'layers/attention/distance_query': f'{_ATTENTION}.pos_query_proj',
        'layers/conv_norm': 'encoder.conv.LayerNorm',
    },
    pooler_of_encoder=False,
    other_heads=('mask_predictions.', 'lm_predictions.'),
    not_legacy={
        'lm_predictions.lm_head.bias': 'cls.predictions.bias',
        'lm_predictions.lm_head.': 'cls.predictions.transform.',
    },
    tiny={
        'type_vocab_size': 0,
        'relative_attention': True,
        'pos_att_type': SCORE_PARTS[1:],
        'share_att_key': True,
        'position_buckets': 4,
        'norm_rel_ebd': 'layer_norm',
        'position_biased_input': False,
    },
)
