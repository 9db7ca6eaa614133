"""BERT (Devlin et al. 2019): LayerNorm after each part, absolute positions, two segments."""

from bert_secrets_jax.model.families.family import Family
from bert_secrets_jax.model.families.tensors import lm_names

FAMILY = Family(
    model_type='bert',
    name='Bert',
    prefix='bert.',
    encoder={
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
    },
    pooler={'pooler': 'pooler.dense'},
    pooler_of_encoder=True,
    lm=lm_names(
        'cls.predictions.transform.dense',
        'cls.predictions.transform.LayerNorm',
        'cls.predictions.decoder',
    ),
    second_bias='cls.predictions.bias',
    other_heads=('cls.seq_relationship.',),
)
