"""Programs are lowered for accelerators that are not there, and their cost is as documented."""

import dataclasses

import jax
import pytest

from benchmarks import cost, formulas, tpu_aot
from benchmarks.chips import MACHINES
from benchmarks.programs import PROGRAMS, Setup, collect, model_config
from bert_secrets_jax.data.encoding import Batch

SMALL = {
    'num_hidden_layers': 2, 'num_attention_heads': 2, 'hidden_size': 16, 'intermediate_size': 32,
    'vocab_size': 50,
}  # fmt: skip


def small(dtype='float32'):
    return dataclasses.replace(model_config('minilm', dtype), **SMALL)


@pytest.mark.parametrize('name', PROGRAMS)
def test_programs_are_lowered_for_devices_that_are_not_there(name):
    program = PROGRAMS[name](Setup(small(), rows=4, length=16, masks=2, micro_batch=2))
    exported = jax.export.export(program.function, platforms=['cuda', 'tpu'])(*program.arguments)
    assert exported.platforms == ('cuda', 'tpu')


def test_products_of_float32_are_float32_everywhere():
    """A default precision is TF32 on a GPU and bfloat16 on a TPU."""
    for name, make in PROGRAMS.items():
        program = make(Setup(small(), rows=4, length=16, masks=2, micro_batch=2))
        text = program.function.trace(*program.arguments).lower().as_text()
        products = [line for line in text.splitlines() if 'stablehlo.dot_general' in line]
        assert all('HIGHEST' in line for line in products), name
        assert products or name in ('embed', 'train_update')


def test_products_of_tf32x3_are_three_of_shorter_floats_each():
    for name in ('forward', 'open_layer', 'last_layer', 'collect', 'train_gradients'):
        program = PROGRAMS[name](Setup(small('tf32x3'), rows=4, length=16, masks=2, micro_batch=2))
        exported = jax.export.export(program.function, platforms=['cuda'])(*program.arguments)
        lines = exported.mlir_module().splitlines()
        products = [line for line in lines if 'stablehlo.dot_general' in line]
        short = ['num_primitive_operations = 3' in line for line in products]
        # Measurements on maps are float32 in every precision of the model.
        assert all(fine or 'HIGHEST' in line for fine, line in zip(short, products, strict=True))
        assert any(short), name


def test_chips_exchange_sums_and_no_maps():
    pytest.importorskip('libtpu', reason="the TPU compiler is in the extra 'tpu-aot'")
    machine = MACHINES['v5e-8']
    setup = Setup(small(), rows=16, length=128, masks=2, mesh=tpu_aot.mesh_of(machine))
    found = tpu_aot.compile_for(machine, collect(setup))
    assert 'all-gather' not in found['collectives']
    # Bytes of the maps of the two examples of a chip: layers, heads, queries, keys.
    maps = 2 * 2 * 2 * 128 * 128 * 4
    assert found['collectives']
    assert all(size < maps / 10 for _, size in found['collectives'].values())


def test_the_cost_of_a_plain_pass_by_hand():
    """Two layers of width 16 on 3 x 4 tokens."""
    batch = Batch(jax.numpy.zeros((3, 4)), None, None, {}, None)
    layer = 4 * (4 * 16**2 + 2 * 16 * 32 + 2 * 4 * 16)
    head = 16**2 + 2 * 16
    assert formulas.forward_operations(small(), [batch]) == 3 * (2 * layer + head)


def test_the_document_shows_what_formulas_and_compiler_say():
    document = cost.PAGE.read_text('utf-8')
    assert cost.page(document) == document
