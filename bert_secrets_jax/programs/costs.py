"""How long sections take: stated in work, and told in the seconds of this machine.

The work of a section is the tokens that go through the model, the programs that are compiled, and
seconds of the host for drawing and the like. The weights are rough: by one machine's quickstart.
"""

import dataclasses
import os
import platform
import time
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from bert_secrets_jax import processes
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.outcome import OUTCOME
from bert_secrets_jax.measure.stream import learned_maps, maps_in
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.pruning.steps import SHARES

# A step of training in passes over its examples: forward, backward, and the optimiser.
_TRAINED = 5.0
# A mask that leaves out one head, in passes (`ablation.sweep`), and one that leaves out many.
_HEAD, _MANY = 0.4, 0.9
# Counted where an estimate must not read every text to be made.
_SAMPLE = 200


@dataclasses.dataclass(frozen=True)
class Cost:
    """The work of a part of a section, which several sections may share.

    Attributes:
      tokens: The tokens that go through all layers, once forward.
      programs: The number of programs that are compiled, in units of a forward pass with maps.
      seconds: The seconds that no model computes: annotation, resampling, drawing.
    """

    tokens: float | int = 0.0
    programs: float | int = 0.0
    seconds: float | int = 0.0


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast this machine runs a model.

    Attributes:
      token: The seconds of a token through all layers, forward, in a full batch.
      program: The seconds in which a forward pass with maps is traced and compiled.
    """

    token: float
    program: float

    def seconds(self, costs: Iterable[Cost]) -> float:
        """Return about how long some work takes."""
        total = sum(
            each.tokens * self.token + each.programs * self.program + each.seconds for each in costs
        )
        return float(total)


def pace_of(study: Study) -> Pace:
    """Measure how fast the model of a study runs here, on one batch of its texts."""
    model = study.pretrained
    encoded = tokenize(model.tokenizer, _some(study.texts), max_length=study.settings.max_length)
    batch = bucket(encoded, **study.settings.bucketing)[0]

    batch = jax.device_put(dataclasses.replace(batch, marks={}))

    def seconds() -> float:
        start = time.perf_counter()
        # The program of every pass over these texts. Where JAX has kept it, it is read, as are then
        # most of the others.
        maps = maps_in(learned_maps, model.bert, 'uniform', model.params, batch, None)
        jax.block_until_ready(maps)
        return time.perf_counter() - start

    first, second = seconds(), min(seconds() for _ in range(2))
    return Pace(second / np.size(batch.input_ids), max(first - second, 0.0))


def machine() -> dict[str, Any]:
    """Return by which names a machine is known whose pace was measured."""
    return {'host': platform.node(), 'devices': str(jax.devices()), 'cores': os.cpu_count()}


def in_words(seconds: float | int) -> str:
    """Return a duration as a person says it.

    >>> in_words(8), in_words(228), in_words(40000)
    ('10 s', '4 min', '11 h')
    """
    if seconds < 55:
        return f'{max(round(seconds / 5) * 5, 5)} s'
    return f'{max(round(seconds / 60), 1)} min' if seconds < 5400 else f'{round(seconds / 3600)} h'


def _examples(study: Study, name: str) -> list[Example]:
    """Return examples of a study by the name of its attribute, without tags and answers."""
    return [getattr(each, 'example', each) for each in getattr(study, name)]


def _some(examples: list[Example]) -> list[Example]:
    return examples[:: max(len(examples) // _SAMPLE, 1)]


def _tokens(study: Study, name: str) -> float:
    """Return about how many tokens one pass over examples computes, with padding."""

    def measured() -> float:
        examples = _examples(study, name)
        tokenizer, length = study.pretrained.tokenizer, study.settings.max_length
        lengths = tokenize(tokenizer, _some(examples), max_length=length).lengths
        return len(examples) * float(lengths.mean() + lengths.max()) / 2

    return study.once(('tokens', name), measured)


def _texts(
    study: Study, passes: float | int, programs: float | int, seconds: float | int = 0.0
) -> Cost:
    return Cost(passes * _tokens(study, 'texts'), programs, seconds)


def _heads(config: BertConfig) -> int:
    return config.num_hidden_layers * config.num_attention_heads


def nothing(study: Study) -> dict[str, Cost]:
    """Return no work: what is read is cheap."""
    return {}


def one_pass(
    study: Study,
    passes: float | int = 0,
    programs: float | int = 0,
    seconds: float | int = 0,
    of: str = '',
) -> dict[str, Cost]:
    """Return the pass over the model as it is, which sections share, and another part.

    Args:
      study: The study.
      passes, programs, seconds: The work of the other part, as in `Cost`, in passes over the texts.
      of: The name of the other part; empty for none.
    """
    shared = {'first pass': _texts(study, 2.6, 6, 5)}
    return shared | ({of: _texts(study, passes, programs, seconds)} if of else {})


def compared(study: Study) -> dict[str, Cost]:
    """Return the pass over the model and each fine-tuned one, which sections share."""
    if not study.has_training:
        return {}
    return finetuned(study) | {'second pass': _texts(study, 4 * len(study.seeds), 12, 3)}


def finetuned(study: Study) -> dict[str, Cost]:
    """Return fine-tuning, unless it is done or there is nothing to train on."""
    if not study.has_training:
        return {}
    if processes.exists(study.finetuning_folder('pretrained') / OUTCOME):
        return {}
    train, starts = study.config.train, study.config.train.starts
    runs = len(study.seeds) * len(starts)
    tokens = _TRAINED * train.epochs * _tokens(study, 'train')
    tokens += (train.epochs + 1) * _tokens(study, 'dev')
    return {'fine-tuning': Cost(runs * tokens, 10, 8)}


def swept(study: Study, seeds: int) -> dict[str, Cost]:
    """Return the sweeps over the models of some seeds."""
    config, passes = study.pretrained.config, 0.0
    for name in study.config.ablation.sets:
        layers, heads = config.num_hidden_layers, _heads(config)
        of_set = {'heads': _HEAD * heads, 'layers': _MANY * layers, 'one_head_left': _HEAD * heads}
        passes += of_set.get(name, 0.0)
    tokens = passes * seeds * _tokens(study, 'ablated_texts')
    return ablated(study) | {f'sweeps of {seeds}': Cost(tokens, 10, 5)}


def ablated(study: Study) -> dict[str, Cost]:
    """Return fine-tuning, unless a model is ablated as it is."""
    return finetuned(study) if study.config.ablation.checkpoint == 'finetuned' else {}


def _scored(study: Study) -> dict[str, Cost]:
    """Return the scores of heads, by gradient, confidence, relevance and without each head."""
    heads = _heads(study.pretrained.config)
    permutations = study.config.importance.permutations
    passes = 24 + heads * (_HEAD + _MANY * permutations)
    tokens = passes * _tokens(study, 'measured_texts')
    return ablated(study) | {'scores of heads': Cost(tokens, 30, 5)}


def importance(study: Study) -> dict[str, Cost]:
    """Return the work for the scores of heads, and the score without each head."""
    tokens = _HEAD * _heads(study.pretrained.config) * _tokens(study, 'ablated_texts')
    return _scored(study) | {'without each head': Cost(tokens, 4, 3)}


def pruned(study: Study) -> dict[str, Cost]:
    """Return the work for curves of removed heads."""
    # Five orders are scored twice.
    orders, steps = 5, len(SHARES)
    seeds = max(len(study.ablated_seeds), 1)
    here = _MANY * steps * (orders + study.config.prune.draws) * _tokens(study, 'ablated_texts')
    there = (_MANY * orders + 5) * steps * _tokens(study, 'measured_texts')
    return _scored(study) | {'pruning': Cost(seeds * (here + there), 30, 15)}


def outliers(study: Study) -> dict[str, Cost]:
    """Return the work for outlier dimensions and random ones, disabled."""
    sets = study.config.outliers.draws + 5
    count = study.config.outliers.max_examples or len(study.texts)
    share = min(count / len(study.texts), 1)
    return {'dimensions': _texts(study, 2 * sets * share, 4, 3)}


def masked_lm(study: Study) -> dict[str, Cost]:
    """Return the work for heads disabled in a masked LM, before and after fine-tuning."""
    config = study.pretrained.config
    masks = _HEAD * _heads(config) + _MANY * config.num_hidden_layers
    return {'masked LM': _texts(study, masks * (1 + study.has_training), 12, 5)}


def attributed(study: Study) -> dict[str, Cost]:
    """Return the work for scores of tokens, and tokens deleted in their order."""
    count = study.config.attribution.max_examples or len(study.ablated_texts)
    share = min(count / len(study.ablated_texts), 1)
    tokens = share * _tokens(study, 'ablated_texts')
    # Each token is deleted once in the order of each method.
    length = _tokens(study, 'ablated_texts') / len(study.ablated_texts)
    return ablated(study) | {'scores of tokens': Cost(tokens * 10 * length, 30, 8)}


def pairs(study: Study) -> dict[str, Cost]:
    """Return the work for pairs of heads."""
    heads = _heads(study.pretrained.config)
    pairs = heads * (heads - 1) / 2
    tokens = _MANY * pairs * _tokens(study, 'ablated_texts')
    return ablated(study) | {'pairs of heads': Cost(tokens, 10, 10)}


def replaced(study: Study) -> dict[str, Cost]:
    """Return the work for the best constants."""
    settings, heads = study.config.replacements, _heads(study.pretrained.config)
    share = min((settings.max_examples or len(study.train)) / len(study.train), 1)
    passes = _TRAINED * settings.passes * heads * share
    return ablated(study) | {'constants': Cost(passes * _tokens(study, 'train'), 20, 10)}


def retrained(study: Study) -> dict[str, Cost]:
    """Return the work for subnetworks that are trained again."""
    found = finetuned(study) | _scored(study)
    tokens = 4 * sum(each.tokens for each in finetuned(study).values())
    return found | {'subnetworks': Cost(tokens, 20, 10)}


def gated(study: Study) -> dict[str, Cost]:
    """Return the work for gates."""
    gates = study.config.gates
    runs = len(gates.coefficients.split(',')) * gates.num_seeds * gates.epochs
    tokens = _TRAINED * runs * _tokens(study, 'train')
    return ablated(study) | {'gates': Cost(tokens, 20, 10)}
