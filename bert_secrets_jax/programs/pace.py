"""The pace of this machine, measured on one batch of the texts of a run."""

import dataclasses
import os
import platform
import time
from typing import Any

import jax
import numpy as np

from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.measure.stream import learned_maps, maps_in
from bert_secrets_jax.programs.given import Given, some
from bert_secrets_jax.runs.cost import Pace


def pace_of(given: Given) -> Pace:
    """Measure how fast the model of a run runs here, on one batch of its texts."""
    model, compute = given.value('pretrained'), given.study.compute()
    some_texts = some(given.value('texts'))
    encoded = tokenize(model.tokenizer, some_texts, max_length=compute.max_length)
    batch = bucket(encoded, **compute.encoding)[0]
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
