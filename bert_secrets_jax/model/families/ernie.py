"""ERNIE 1 to 3 (Sun et al. 2019): BERT with embeddings of tasks.

Its texts are of task 0, as `transformers` takes them if nothing is said.
"""

from dataclasses import replace

from bert_secrets_jax.model.families.bert import FAMILY as BERT

FAMILY = replace(
    BERT,
    model_type='ernie',
    name='Ernie',
    reads=('use_task_id', 'task_type_vocab_size'),
    defaults={'use_task_id': False, 'task_type_vocab_size': 3},
    # Keys of the library that they were made with, which stayed in some files.
    ignored=('embedding_size', 'sent_type_vocab_size'),
    prefix='ernie.',
    encoder=BERT.encoder | {'embeddings/task_type': 'embeddings.task_type_embeddings'},
    tiny={'use_task_id': True, 'task_type_vocab_size': 3},
)
