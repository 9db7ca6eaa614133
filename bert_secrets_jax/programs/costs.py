"""How long sections take: the tokens that go through the model, the programs that are compiled, and
seconds of the host for drawing and the like. The weights are rough: by one machine's quickstart.
"""

import dataclasses
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from bert_secrets_jax import processes
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.finetune.outcome import OUTCOME
from bert_secrets_jax.measure.stream import learned_maps, maps_in
from bert_secrets_jax.programs import needs
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.pruning.steps import SHARES

# A step of training in passes over its examples: forward, backward, and the optimiser.
_TRAINED = 5.0
# A mask that leaves out one head, in passes (`ablation.sweep`), and one that leaves out many.
_HEAD, _MANY = 0.4, 0.9
# Counted where an estimate must not read every text to be made.
_SAMPLE = 200
Number = float | int
# So many seconds of work say little of how well an estimate fits.
_LITTLE = 30.0


@dataclasses.dataclass(frozen=True)
class Cost:
    """The work of a part of a section, which several sections may share.

    Attributes:
      tokens: The tokens that go through all layers, once forward.
      programs: The number of programs that are compiled, in units of a forward pass with maps.
      seconds: The seconds that no model computes: annotation, resampling, drawing.
    """

    tokens: Number = 0.0
    programs: Number = 0.0
    seconds: Number = 0.0


Costs = dict[str, Cost]


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast this machine runs a model: seconds of a token, forward, and of compiling a pass."""

    token: float
    program: float

    def seconds(self, costs: Iterable[Cost]) -> float:
        return math.fsum(
            each.tokens * self.token + each.programs * self.program + each.seconds for each in costs
        )

    def left(self, sections: Sequence[Mapping[str, Cost]], done: int, passed: float) -> float:
        """Return about how many seconds sections take, of which so many took the time `passed`."""
        before, every = (
            self.seconds({k: v for parts in some for k, v in parts.items()}.values())
            for some in (sections[:done], sections)
        )
        return (every - before) * (passed + _LITTLE) / (before + _LITTLE)


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


def in_words(seconds: Number) -> str:
    """Return a duration as a person says it.

    >>> in_words(8), in_words(228), in_words(40000)
    ('10 s', '4 min', '11 h')
    """
    if seconds < 55:
        return f'{max(round(seconds / 5) * 5, 5)} s'
    return f'{max(round(seconds / 60), 1)} min' if seconds < 5400 else f'{round(seconds / 3600)} h'


def _some(examples: list[Example]) -> list[Example]:
    return examples[:: max(len(examples) // _SAMPLE, 1)]


def _tokens(study: Study, name: str) -> float:
    """Return about how many tokens one pass over examples computes, with padding."""

    def measured() -> float:
        # Without tags and answers.
        examples = [getattr(each, 'example', each) for each in getattr(study, name)]
        tokenizer, length = study.pretrained.tokenizer, study.settings.max_length
        lengths = tokenize(tokenizer, _some(examples), max_length=length).lengths
        return len(examples) * float(lengths.mean() + lengths.max()) / 2

    return study.once(('tokens', name), measured)


def _over(study: Study, name: str, passes: Number, programs: Number, seconds: Number = 0) -> Cost:
    """Return the work of passes over examples, by the name of the study's attribute."""
    return Cost(passes * _tokens(study, name), programs, seconds)


def _share(study: Study, name: str, wanted: int) -> float:
    """Return the share of examples that a setting takes, of which 0 takes all."""
    count = len(getattr(study, name))
    return min((wanted or count) / count, 1.0)


def _heads(study: Study) -> int:
    config = study.pretrained.config
    return config.num_hidden_layers * config.num_attention_heads


def one_pass(study: Study) -> Costs:
    """Return the pass over the model as it is, which sections share."""
    return {'first pass': _over(study, 'texts', 2.6, 6, 5)}


def plus(name: str, passes: Number, programs: Number, seconds: Number) -> Callable[[Study], Costs]:
    """Return the costs of the first pass and of passes of one's own over the same texts."""
    return lambda study: one_pass(study) | {name: _over(study, 'texts', passes, programs, seconds)}


def compared(study: Study) -> Costs:
    """Return the pass over the model and each fine-tuned one, which sections share."""
    if not study.has_training:
        return {}
    return finetuned(study) | {'second pass': _over(study, 'texts', 4 * len(study.seeds), 12, 3)}


def finetuned(study: Study) -> Costs:
    """Return fine-tuning, unless it is done or there is nothing to train on."""
    if not study.has_training or processes.exists(study.finetuning_folder('pretrained') / OUTCOME):
        return {}
    runs = len(study.seeds) * len(study.config.train.starts)
    return {'fine-tuning': Cost(runs * _per_run(study), 10, 8)}


def _per_run(study: Study) -> float:
    """Return the work of fine-tuning with one seed."""
    train = study.config.train
    steps = -(-len(study.train) // train.batch_size) * train.epochs
    # Where maps are compared, both models read the dev examples.
    passes = train.epochs + 1 + (4 * (steps // train.maps_every) if train.maps_every else 0)
    dev = _share(study, 'dev', train.max_dev_examples) * _tokens(study, 'dev')
    return _TRAINED * train.epochs * _tokens(study, 'train') + passes * dev


def rescheduled(study: Study) -> Costs:
    runs = len(study.schedules) * len(study.seeds)
    steps = 6 * study.pretrained.config.num_hidden_layers
    learnt, maps = Cost(runs * _per_run(study), 10, 0), _over(study, 'texts', steps, 10, 8)
    return {'fine-tuning under schedules': learnt, 'random steps': maps}


def swept(study: Study, seeds: int) -> Costs:
    """Return the sweeps over the models of some seeds."""
    heads = _HEAD * _heads(study)
    layers = _MANY * study.pretrained.config.num_hidden_layers
    of_sets = {'heads': heads, 'layers': layers, 'one_head_left': heads}
    passes = sum(of_sets.get(name, 0.0) for name in study.config.ablation.sets)
    work = _over(study, 'ablated_texts', seeds * passes, 10, 5)
    return ablated(study) | {f'sweeps of {seeds}': work}


def ablated(study: Study) -> Costs:
    """Return fine-tuning, unless a model is ablated as it is."""
    return finetuned(study) if study.config.ablation.checkpoint == 'finetuned' else {}


def _scored(study: Study) -> Costs:
    """Return the scores of heads, by gradient, confidence, relevance and without each head."""
    each = _HEAD + _MANY * study.config.importance.permutations
    work = _over(study, 'measured_texts', 24 + _heads(study) * each, 30, 5)
    return ablated(study) | {'scores of heads': work}


def importance(study: Study) -> Costs:
    work = _over(study, 'ablated_texts', _HEAD * _heads(study), 4, 3)
    return _scored(study) | {'without each head': work}


def pruned(study: Study) -> Costs:
    # Five orders are scored twice.
    orders, steps = 5, len(SHARES)
    seeds = max(len(study.ablated_seeds), 1)
    here = _MANY * steps * (orders + study.config.prune.draws) * _tokens(study, 'ablated_texts')
    there = (_MANY * orders + 5) * steps * _tokens(study, 'measured_texts')
    return _scored(study) | {'pruning': Cost(seeds * (here + there), 30, 15)}


def outliers(study: Study) -> Costs:
    settings = study.config.outliers
    share = _share(study, 'texts', settings.max_examples)
    return {'dimensions': _over(study, 'texts', 2 * (settings.draws + 5) * share, 4, 3)}


def masked_lm(study: Study) -> Costs:
    masks = _HEAD * _heads(study) + _MANY * study.pretrained.config.num_hidden_layers
    return {'masked LM': _over(study, 'texts', masks * (1 + study.has_training), 12, 5)}


def embedded(name: str, texts: str) -> Callable[[Study], Costs]:
    """Return the costs of embeddings of all texts without each head and each layer."""

    def costs(study: Study) -> Costs:
        masks = _HEAD * _heads(study) + _MANY * study.pretrained.config.num_hidden_layers
        return {name: _over(study, texts, masks, 12, 5)}

    return costs


def attributed(study: Study) -> Costs:
    share = _share(study, 'ablated_texts', study.config.attribution.max_examples)
    # Each token is deleted once in the order of each method.
    length = _tokens(study, 'ablated_texts') / len(study.ablated_texts)
    passes = 10 * length + _TRAINED * study.config.attribution.steps
    work = _over(study, 'ablated_texts', share * passes, 30, 8)
    return ablated(study) | {'scores of tokens': work}


def directly(study: Study) -> Costs:
    return ablated(study) | {'direct parts': _over(study, 'ablated_texts', 4, 6, 8)}


def patched(study: Study) -> Costs:
    tuned = not needs.classifier(study)
    name = 'ablated_texts' if tuned else 'texts'
    # A pair has two texts, and not every text is in one.
    share = min(_share(study, name, 2 * study.config.patching.max_examples), 0.7) / 2
    # Two directions of a head, and the gradients of an estimate and of the steps of another.
    passes = 1 + share * (1.2 * _heads(study) + 2 * (5 + 3 * 5))
    work = {'patches': _over(study, name, passes, 14, 8)}
    return work | (ablated(study) if tuned else {})


def gated_twice(study: Study) -> Costs:
    settings, runs = study.config.head_gating, 2 * study.config.head_gating.num_seeds
    share = _share(study, 'train', settings.max_examples)
    learnt = _over(study, 'train', _TRAINED * runs * settings.epochs * share, 14, 5)
    removed = _over(study, 'ablated_texts', _HEAD * _heads(study) + 2 * runs, 12, 5)
    return ablated(study) | {'gates of both prices': learnt, 'without gated heads': removed}


def preferred(study: Study) -> Costs:
    # A masked LM is asked for each wordpiece but [CLS] and [SEP], other models once.
    count, own = len(study.good_texts), study.config.minimal_pairs.label
    once = own or study.config.minimal_pairs.anchor
    pieces = 1 if once else _tokens(study, 'good_texts') / count - 2
    work = _over(study, 'good_texts', 2 * pieces * (1 + _HEAD * _heads(study)), 10, 8)
    return (ablated(study) if own else {}) | {'minimal pairs': work}


def paired(study: Study) -> Costs:
    settings, length = study.config.token_pairs, _tokens(study, 'pairs') / len(study.pairs)
    share = _share(study, 'pairs', settings.max_examples)
    # Each token once for each step, through the layers above, and once deleted.
    layers = min(2 / study.pretrained.config.num_hidden_layers, 1)
    passes = share * length * (1 + 2 * layers * settings.steps)
    return {'pairs of tokens': _over(study, 'pairs', passes, 6, 8)}


def pairs(study: Study) -> Costs:
    work = _over(study, 'ablated_texts', _MANY * math.comb(_heads(study), 2), 10, 10)
    return ablated(study) | {'pairs of heads': work}


def replaced(study: Study) -> Costs:
    settings = study.config.replacements
    share = _share(study, 'train', settings.max_examples)
    passes = _TRAINED * settings.passes * _heads(study) * share
    return ablated(study) | {'constants': _over(study, 'train', passes, 20, 10)}


def retrained(study: Study) -> Costs:
    shared = finetuned(study) | _scored(study)
    tokens = 4 * sum(each.tokens for each in finetuned(study).values())
    return shared | {'subnetworks': Cost(tokens, 20, 10)}


def gated(study: Study) -> Costs:
    gates = study.config.gates
    runs = len(gates.coefficients.split(',')) * gates.num_seeds * gates.epochs
    return ablated(study) | {'gates': _over(study, 'train', _TRAINED * runs, 20, 10)}
