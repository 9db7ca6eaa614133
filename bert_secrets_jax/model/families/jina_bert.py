"""jina-embeddings-v2 and jina-reranker-v1 (Günther et al. 2023): BERT with ALiBi and gates.

Scores fall with distance, in place of positions. Training drops within the feed-forward layer, and
not its output. They are read by the repository jinaai/jina-bert-implementation alone, whose
config.json says 'bert'. Gates by ReLU and normalised keys are not implemented.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT
from bert_secrets_jax.model.families.family import OURS

_CODE = 'jinaai/jina-bert-implementation'
FAMILY = replace(
    BERT,
    model_type='jina_bert',
    name='JinaBert',
    gated=True,
    bias_of_gates=False,
    dropout_in_feed_forward=True,
    dropout_after_feed_forward=False,
    pruned_key=OURS,
    always={'position_embedding_type': 'alibi'},
    must_be={'hidden_act': ('gelu',)},
    ignored=('position_embedding_type', 'feed_forward_type', 'emb_pooler'),
    known_by={
        'model_type': 'bert',
        'position_embedding_type': 'alibi',
        'feed_forward_type': 'geglu',
    },
    code={'AutoConfig': f'{_CODE}--configuration_bert.JinaBertConfig'}
    | {
        f'AutoModel{ending}': f'{_CODE}--modeling_bert.JinaBert{ending or "Model"}'
        for ending in ('', 'ForMaskedLM', 'ForSequenceClassification')
    },
    encoder=BERT.encoder
    | {
        'layers/intermediate': 'encoder.layer.{}.mlp.gated_layers',
        'layers/output': 'encoder.layer.{}.mlp.wo',
        'layers/output_norm': 'encoder.layer.{}.mlp.layernorm',
    },
)
