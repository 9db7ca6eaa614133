"""Temporary: numbers of small trainings, before and after."""
import os
import jax, numpy as np, dataclasses
import bert_secrets_jax as bs
from tests.finetune.test_train import TRAIN, DEV, SETTINGS, pretrained
from tests.finetune.test_tags import tagged, asked
from tests.finetune import test_tags
from tests.pruning.test_gates import world, HOW
from tests.probes.conftest import random_parses, vectors

from tests.conftest import random_params
from tests.pruning import test_constants as tc
from tests.tools.patterns.test_rivals import drawn
from tools.patterns import rivals

def flat(name, tree):
    return {f'{name}/{i}': np.asarray(l) for i, l in enumerate(jax.tree.leaves(tree))}

def keep(part, found):
    folder = os.environ['SNAP']
    os.makedirs(folder, exist_ok=True)
    np.savez(f'{folder}/{part}.npz', **found)

def test_finetune(pretrained):
    f = bs.finetune(pretrained, TRAIN, DEV, **SETTINGS)
    keep('finetune', flat('h', f.history) | flat('m', [m.params for m in f.models]))

def test_of_tags(config, tokenizer):
    bert = bs.Bert(dataclasses.replace(config, label_names=()))
    from bert_secrets_jax.model.bert import init_params
    p = bs.Pretrained(bert, init_params(bert, 7), tokenizer)
    f = bs.finetune(p, tagged(64), tagged(24, 1), seeds=2, **test_tags.SETTINGS)
    keep('tags', flat('h', f.history) | flat('m', [m.params for m in f.models]))

def test_gates(world):
    for frozen in (True, False):
        how = HOW | {'learning_rate': 1e-3} if not frozen else HOW
        f = bs.train_gates(*world, coefficients=(0.0, 0.02), seeds=2, frozen=frozen, **how)
        v = {x.name: np.asarray(getattr(f, x.name)) for x in dataclasses.fields(f) if x.name != 'models'}
        keep(f'gates{frozen}', v | flat('m', [m.params for m in f.models]))

def test_probes(bert, tokenizer, vectors):
    plain = bs.Bert(dataclasses.replace(bert.config, label_names=()))
    model = bs.Pretrained(plain, random_params(plain), tokenizer)
    f = bs.train_probes(model, random_parses(0, 30), vectors=vectors, epochs=2, max_length=32, seeds=2, batch_size=2)
    keep('probes', flat('p', dict(f.params)) | flat('c', dict(f.curves)) | {'steps': f.steps, 'seen': f.seen})

def test_constants(config, tokenizer):
    small = dataclasses.replace(config, num_hidden_layers=2, num_attention_heads=2)
    bert = bs.Bert(small)
    model = bs.Pretrained(bert, random_params(bert), tokenizer)
    f = tc.optimal_constants(model, tc.batches_of(model), tc.task_loss, passes=6)
    keep('constants', {x.name: np.asarray(getattr(f, x.name)) for x in dataclasses.fields(f)})

def test_network(drawn):
    f = rivals.fit_network(*drawn, rivals.TrainConfig(epochs=2))
    keep('network', flat('p', f.params))
