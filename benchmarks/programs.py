"""The compiled programs of this package with abstract arguments: they can be lowered anywhere.

Nothing is computed and no weights are needed. The devices may be absent ones, such as those of
`jax.experimental.topologies`, and the sizes are those that a run on them would have.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import layers
from bert_secrets_jax.ablation.contexts import layers_of
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.finetune import seeds as training
from bert_secrets_jax.finetune import steps
from bert_secrets_jax.finetune.loop import TrainState
from bert_secrets_jax.finetune.optimizers import make_optimizer
from bert_secrets_jax.measure.catalogue import CATALOGUE, changed, of_second
from bert_secrets_jax.measure.stream import step
from bert_secrets_jax.model.bert import Bert, param_shapes
from bert_secrets_jax.model.encoder import scope_of

MODELS: Mapping[str, dict[str, int]] = types.MappingProxyType(
    {
        'minilm': {'hidden_size': 384, 'intermediate_size': 1536, 'num_hidden_layers': 6},
        'bert-base': {},
        'bert-large': {
            'hidden_size': 1024,
            'intermediate_size': 4096,
            'num_hidden_layers': 24,
            'num_attention_heads': 16,
        },
    }
)
# Seven statistics of one model, and three of two.
COLLECTED = (
    '[CLS]', '[SEP]', '[CLS] and all [SEP]', 'self', 'previous token', 'next token',
    'entropy (nats)',
)  # fmt: skip
_MARKS = ('token', 'cls', 'sep', 'period_comma')


def model_config(name: str, dtype: str) -> bs.BertConfig:
    """Return the config of one of MODELS, with a classifier of two classes."""
    return bs.BertConfig(**MODELS[name], label_names=('no', 'yes'), dtype=dtype)


@dataclasses.dataclass(frozen=True)
class Setup:
    """The setup that a program is made for.

    Attributes:
      config: The model.
      rows, length: The shape of a batch, over all devices.
      masks: The number of masks in one call of a sweep.
      micro_batch: The number of examples of each seed in a training step.
      mesh: The devices, along an axis `data`; None is one device of any kind.
    """

    config: bs.BertConfig
    rows: int
    length: int = 128
    masks: int = 8
    micro_batch: int = 32
    mesh: Mesh | None = None

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.mesh.size if self.mesh else 1

    def split(self, tree: Any) -> Any:
        """Return abstract arrays that are spread over the devices by their first axis."""
        return self._placed(tree, 'data')

    def whole(self, tree: Any) -> Any:
        """Return abstract arrays of which every device has a copy."""
        return self._placed(tree)

    def _placed(self, tree, *axes):
        sharding = self.mesh and NamedSharding(self.mesh, PartitionSpec(*axes))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    @property
    def bert(self) -> Bert:
        """The model."""
        return Bert(self.config)

    @functools.cached_property
    def params(self) -> Any:
        """Its parameters."""
        return self.whole(param_shapes(self.bert))

    @property
    def batch(self) -> Batch:
        """A batch."""
        return self.split(_batch(self.rows, self.length))

    @property
    def setting(self) -> layers.Static:
        """The static argument of a sweep's pieces."""
        return layers.Static(self.config, 'uniform')

    @property
    def layer(self) -> Any:
        """The parameters of one layer."""
        return self.whole(jax.eval_shape(layers_of, self.params)[0])

    @property
    def scope(self) -> Any:
        """The tokens of the batch that a layer may see."""
        _, scopes = jax.eval_shape(
            functools.partial(layers.embed, self.setting), self.params['embeddings'], self.batch
        )
        return self.split(jax.eval_shape(lambda scopes: scope_of(scopes, 0), scopes))

    def hidden(self, masks: int = 1) -> Any:
        """Return the hidden states of the batch under some masks."""
        config = self.config
        shape = self.rows * masks, self.length, config.hidden_size
        return self.split(jax.ShapeDtypeStruct(shape, config.array_dtype))


@dataclasses.dataclass(frozen=True)
class Program:
    """A function under `jit` and its arguments, of which arrays are abstract.

    Attributes:
      function: The function.
      arguments: Its arguments.
      meanwhile: Arrays that are on the devices while it runs, and belong to other programs of the
        same work; one part of each is on each device.
    """

    function: Callable
    arguments: tuple[Any, ...]
    meanwhile: Any = ()

    def lower(self) -> jax.stages.Lowered:
        """Return the program, ready for the compiler of its devices."""
        return self.function.lower(*self.arguments)


def _batch(rows: int, length: int) -> Batch:
    ids = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    mark = jax.ShapeDtypeStruct((rows, length), jnp.bool_)
    number = jax.ShapeDtypeStruct((rows,), jnp.int32)
    return Batch(ids, ids, ids, dict.fromkeys(_MARKS, mark), number)


def forward(setup: Setup) -> Program:
    """A plain pass to the logits under a mask: what a sweep without sharing repeats."""
    config = setup.config
    mask = (config.num_hidden_layers, config.num_attention_heads)
    return Program(
        jax.jit(functools.partial(_logits, setup.bert)),
        (setup.params, setup.batch, setup.whole(jax.ShapeDtypeStruct(mask, jnp.float32))),
    )


def _logits(bert, params, batch, head_mask):
    return bert.apply({'params': params}, **batch.inputs, head_mask=head_mask).logits


def _stream(setup: Setup, statistics: Mapping[str, Callable], models: int = 1) -> Program:
    """Return one step of the streaming pass, after the first batch."""
    bert = (setup.bert,) * models
    one_step = functools.partial(step, bert, tuple(statistics.items()), tables=len(statistics))
    return Program(jax.jit(one_step), ((setup.params,) * models, setup.batch))


def collect(setup: Setup) -> Program:
    """Seven statistics of all heads."""
    return _stream(setup, {name: CATALOGUE[name].function for name in COLLECTED})


def compare(setup: Setup) -> Program:
    """The cosine similarity of two models' maps, and the entropy and its change."""
    entropy = CATALOGUE['entropy (nats)']
    described = [CATALOGUE['cosine'], of_second(entropy), changed(entropy)]
    return _stream(setup, {each.name: each.function for each in described}, models=2)


def patterns(setup: Setup) -> Program:
    """The class of every map."""
    return _stream(setup, {'pattern': bs.patterns.pattern(bs.patterns.load_classifier())})


def embed(setup: Setup) -> Program:
    """The hidden states that enter the first layer."""
    return Program(layers.embed, (setup.setting, setup.params['embeddings'], setup.batch))


def open_layer(setup: Setup) -> Program:
    """A layer's attention, once for all masks that first differ in it."""
    return Program(
        layers.open_layer, (setup.setting, setup.layer, setup.hidden(), setup.scope, None)
    )


def close_layer(setup: Setup) -> Program:
    """The rest of an opened layer under masks that change one head each."""
    config, hidden = setup.config, setup.hidden()
    changes = jax.ShapeDtypeStruct((config.num_attention_heads, *hidden.shape), hidden.dtype)
    if setup.mesh:
        by_example = NamedSharding(setup.mesh, PartitionSpec(None, 'data'))
        changes = jax.ShapeDtypeStruct(changes.shape, changes.dtype, sharding=by_example)
    heads = setup.whole(jax.ShapeDtypeStruct((setup.masks, 1), jnp.int32))
    amounts = setup.whole(jax.ShapeDtypeStruct((setup.masks, 1), jnp.float32))
    given = setup.setting, setup.layer, hidden, changes, setup.scope, heads, amounts
    return Program(layers.close_layer, given)


def leave_layer(setup: Setup) -> Program:
    """The rest of an opened layer without a mask."""
    return Program(layers.leave_layer, (setup.setting, setup.layer, setup.hidden(), setup.scope))


def run_layer(setup: Setup) -> Program:
    """A whole layer of examples under the masks of earlier layers."""
    hidden = setup.hidden(setup.masks)
    return Program(layers.run_layer, (setup.setting, setup.layer, hidden, setup.scope, None))


def run_masked_layer(setup: Setup) -> Program:
    """A whole layer that masks change too."""
    *arguments, _ = run_layer(setup).arguments
    mask = setup.rows * setup.masks, setup.config.num_attention_heads
    return Program(
        layers.run_layer, (*arguments, setup.whole(jax.ShapeDtypeStruct(mask, jnp.float32)))
    )


def last_layer(setup: Setup) -> Program:
    """The logits of examples under the masks of earlier layers."""
    config = setup.config
    mask = setup.rows * setup.masks, 1, config.num_attention_heads
    classifier = {
        name: part for name, part in setup.params.items() if name not in ('embeddings', 'layers')
    }
    return Program(
        layers.last_layer,
        (
            setup.setting, setup.layer, classifier, setup.hidden(setup.masks), setup.scope,
            setup.whole(jax.ShapeDtypeStruct(mask, jnp.float32)),
        ),
    )  # fmt: skip


def _trained(setup: Setup):
    """Return the number of seeds, which spread over the devices, and their parameters."""
    seeds = max(setup.devices, 2)
    stacked = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype),
        param_shapes(setup.bert),
    )
    return seeds, setup.split(stacked)


def train_gradients(setup: Setup) -> Program:
    """The gradients of a step, with one seed per device, beside the moments of its update."""
    seeds, params = _trained(setup)
    rows = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype),
        _batch(setup.micro_batch, setup.length),
    )
    labels = jax.ShapeDtypeStruct((seeds, setup.micro_batch), jnp.float32)
    counts = jax.ShapeDtypeStruct((seeds,), jnp.float32)
    numbers = jax.ShapeDtypeStruct((seeds,), jnp.int32)
    keys = jax.eval_shape(steps.keys_of_step, numbers, 0)
    return Program(
        steps._add_gradients,
        (
            setup.bert,
            training._loss,
            params,
            None,
            params,
            setup.split(counts),
            None,
            setup.split((rows, labels, keys, counts)),
        ),
        _optimizer(setup)[1],
    )


def _optimizer(setup: Setup):
    """Return AdamW and its moments of all seeds."""
    _, params = _trained(setup)
    optimizer = make_optimizer('adamw', lambda step: 5e-5, weight_decay=0.01, clip=1.0)
    return optimizer, setup.split(jax.eval_shape(jax.vmap(optimizer.init), params))


def train_update(setup: Setup) -> Program:
    """The update of a step, with one seed per device."""
    _, params = _trained(setup)
    optimizer, moments = _optimizer(setup)
    step = setup.whole(jax.ShapeDtypeStruct((), jnp.int32))
    state = TrainState(step, params, moments)
    return Program(steps._update, (optimizer, state, params, None, {}))


PROGRAMS: Mapping[str, Callable[[Setup], Program]] = types.MappingProxyType(
    {
        each.__name__: each
        for each in (
            embed, leave_layer, last_layer, close_layer, open_layer, run_layer, run_masked_layer,
            forward, train_update, collect, compare, patterns, train_gradients,
        )
    }
)  # fmt: skip
