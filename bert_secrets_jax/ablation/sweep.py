"""The sweep over head masks: exact, and each mask costs only what it changes.

Masks that are equal in the first layers share the hidden states of those layers. In the first layer
where they differ, the attention is still computed once for all of them, and each mask pays only for
its own feed-forward network. In the last layer each mask pays only for the one row from which the
logits are computed, unless they are computed from all rows.

With the baselines 'mean' and 'resample' the intact model runs once more, over all examples before
the sweep ('mean') or over the donors of each piece of a batch ('resample').
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int, Real

from bert_secrets_jax.ablation import contexts, layers
from bert_secrets_jax.ablation.contexts import Donors, Means
from bert_secrets_jax.ablation.layers import Static
from bert_secrets_jax.ablation.masks import GivenMasks, Masks, check_masks
from bert_secrets_jax.checks import brief, check_enough, check_rules, check_shape
from bert_secrets_jax.compute import DATA, MASKS, Compute, fetch
from bert_secrets_jax.data.encoding import Batch, in_order, listed, to_one_length
from bert_secrets_jax.data.masking import MaskedBatch
from bert_secrets_jax.measure.stream import check_split
from bert_secrets_jax.model.attention import OUTPUT_BASELINES, Scope, check_baseline
from bert_secrets_jax.model.bert import Bert, check_finite
from bert_secrets_jax.model.config import EMBEDDING, MASKED_LM, SEQUENCES
from bert_secrets_jax.model.encoder import kinds_of_layers, scope_of
from bert_secrets_jax.model.weights import Pretrained, check_whole

# A mask of a single head costs about this share of a pass (docs/reference/speed.md).
_PASSES_OF_A_MASK = 0.4


@dataclasses.dataclass(frozen=True)
class Swept:
    """The logits of a model under every mask.

    Attributes:
      masks: [M, L, N] The masks, as they were given to the sweep; [M, L, P, N] those over parts.
      logits: [M, E, C] The logits of every example under every mask; [M, E, T, C] of its tokens
        where the head is one of single tokens, 0 past the padded length of an example. For a masked
        LM it is [M, E, 1], the sum of the log-probabilities of the hidden wordpieces, and for a
        model of `bs.with_pooling` [M, E, D], the embeddings.
    """

    masks: Float[np.ndarray, 'M L *P N']
    logits: Float[np.ndarray, 'M E *T C']

    __repr__ = brief

    @property
    def predictions(self) -> Real[np.ndarray, 'M E *T']:
        """The predicted class ids, or the predicted values where there is one output (C is 1).

        Those of a masked LM and of embeddings mean nothing. FloatingPointError if some logits are
        NaN or infinite.
        """
        check_finite(self.logits)
        if self.logits.shape[-1] == 1:
            return self.logits[..., 0]
        return self.logits.argmax(axis=-1)


def default_chunk_tokens() -> int:
    """Return the number of tokens for one call: they fit the cache of a CPU, or keep a GPU busy."""
    return 1024 if jax.default_backend() == 'cpu' else 65_536


def sweep(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    masks: GivenMasks,
    *,
    baseline: str = 'uniform',
    replacement: Means | None = None,
    donor_seed: int = 0,
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Swept:
    """Compute the logits of every example under every mask.

    They equal those of one forward pass per mask, up to the rounding of float32. For work that
    takes hours, `sweep_examples` shows its progress and can be interrupted; `sweep_batches` yields
    the logits batch by batch.

    Args:
      pretrained: A model with a classification or regression head, of inputs or of single tokens,
        or a masked LM.
      batches: The batches of one call of `encode`; for a masked LM, those of `mask_words`.
      masks: [M, L, N] The masks, from `ablation/masks.py` or your own: 1 keeps a head, 0 replaces
        what it does by the baseline, and a fraction mixes the two.
      baseline: The behaviour of a disabled head. 'uniform' gives every token 1/length (the paper,
        section 4.6), and 'zero' removes the head (Michel et al. 2019). 'mean' replaces its output
        by its mean output over a corpus (Wang et al. 2022), 'resample' by its output on another
        example (Chan et al. 2022).
      replacement: [L, N, H] For 'mean', the mean outputs of the heads over a corpus of your own,
        from `mean_contexts`; None takes the mean over these batches.
      donor_seed: For 'resample', the seed of the draw of that other example.
      chunk_tokens: The number of tokens, of all examples and masks together, that one call
        computes; None takes `default_chunk_tokens`. Smaller chunks need less memory.
      mesh: The devices, along an axis `data`, that share the examples of each batch, and perhaps a
        second one, `masks`, that share the masks. None uses one device.

    Raises:
      TypeError: The model is not a `Pretrained`, or a single batch is given.
      ValueError: The masks do not fit the model, the model has no head or gives several labels at
        once, the baseline is unknown or does not go with the replacement, there are no batches or,
        for 'resample', fewer than two examples, a batch cannot be split over the devices, or
        nothing is hidden in it from a masked LM.
    """
    batches = list(listed(batches))
    check_enough('batches to sweep', batches)
    how = {'baseline': baseline, 'replacement': replacement, 'donor_seed': donor_seed}
    found = sweep_batches(pretrained, batches, masks, chunk_tokens=chunk_tokens, mesh=mesh, **how)
    logits = in_order([batch.example for batch in batches], to_one_length(found), axis=1)
    return Swept(np.asarray(masks, np.float32), logits)


def sweep_batches(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    masks: GivenMasks,
    *,
    baseline: str = 'uniform',
    replacement: Means | None = None,
    donor_seed: int = 0,
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Iterator[Float[np.ndarray, 'M B *T C']]:
    """Yield the logits [M, B, C] of each batch; arguments and errors are those of `sweep`.

    The logits of filler rows mean nothing. With the baseline 'resample', or 'mean' without a
    replacement, all batches are held, because what replaces a head's output depends on all of them.
    """
    compute = Compute(chunk_tokens=chunk_tokens, mesh=mesh)
    descent = Descent.start(pretrained, masks, baseline, replacement, compute)
    batches = listed(batches)
    if descent.lacks_replacement:
        batches = list(batches)
        descent = descent.replacing(pretrained, batches, donor_seed, mesh)
    return map(descent.logits, batches)


def _pieces(batch: Batch, tokens: int, devices: int) -> Iterator[np.ndarray]:
    """Cut the rows of a batch into equal pieces of at most `tokens`, or of one row per device."""
    check_split(batch, devices)
    count, length = np.shape(batch.input_ids)
    most = max(tokens // length // devices, 1) * devices
    size = -(-count // -(-count // most) // devices) * devices
    for start in range(0, count, size):
        # The last piece repeats its last row: all pieces have one shape and one compilation.
        rows = np.minimum(np.arange(start, start + size), count - 1)
        if (np.asarray(batch.example)[rows] >= 0).any():
            yield rows


def one_behind(results: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, np.ndarray]]:
    """Fetch each array while the device works on the next one, and never queue more than one."""
    before = None
    for now in itertools.chain(results, [None]):
        if before is not None:
            yield before[0], fetch(before[1])
        before = now


@dataclasses.dataclass(frozen=True)
class Piece:
    """A piece of a batch, as all steps through the layers read it on the devices.

    `scopes` and `replacements` (see `layers`) are those of each layer. A replacement is None where
    nothing is replaced; those of 'resample' are as large as the hidden states.
    """

    batch: Batch
    scopes: Sequence[Scope]
    replacements: Sequence[Any]


# Three masks in a model of three layers: L2-H1, L2-H2 and L3-H1 are disabled, and each line is run
# once. Nodes are hidden states, with the masks that share them:
#
#     embeddings             all
#     layer 1                all
#     layer 2, attention     L2-H1, L2-H2 and the intact one: once, each less its own head
#              feed-forward  L2-H1     L2-H2     intact, for L3-H1
#     layer 3, attention     L2-H1     L2-H2     intact, less head 1
#              feed-forward  L2-H1     L2-H2     L3-H1, all three at [CLS] alone
#     logits                 L2-H1     L2-H2     L3-H1
@dataclasses.dataclass(frozen=True)
class Descent:
    """The computation of all masks, layer by layer, ready to run on any batch.

    Attributes:
      params: All parameters.
      layers: Those of each layer, apart: each call would copy a slice of their stack.
      masks, which: [M, L, N] The distinct masks, and the index of each that was given among them.
      tokens: The number of tokens that a call computes on all devices together.
      devices, groups: The number of devices that share the examples of a batch, and of such groups,
        which share the masks.
      replacement: The mean outputs [L, N, H] of the heads, or the donors of examples, as the
        baseline needs.
    """

    setting: Static
    params: Any
    layers: Sequence[Any]
    masks: Masks
    which: Int[np.ndarray, ' given']
    tokens: int
    devices: int
    groups: int
    place: Callable[[Any], Any]
    replacement: Means | Donors | None = None

    @classmethod
    def start(
        cls, pretrained: Pretrained, masks, baseline: str, replacement, compute: Compute
    ) -> 'Descent':
        """Check the arguments, which are those of `sweep`, and prepare the parameters."""
        check_whole(pretrained)
        config = pretrained.config
        masks = check_masks(config, masks)
        check_rules(
            (
                not config.has_head,
                'A sweep compares logits, and this model has no classifier: load a fine-tuned '
                'checkpoint, or give label_names to bs.from_pretrained.',
            ),
            (
                config.multi_label,
                f'A sweep compares single labels, and this model ({config.summary}) gives several '
                'at once: give label_names to bs.from_pretrained, and fine-tune it.',
            ),
        )
        check_baseline(baseline)
        if replacement is not None:
            if baseline != 'mean':
                raise ValueError(f"A replacement goes with baseline='mean', not with {baseline=}.")
            replacement = np.asarray(replacement, np.float32)
            sizes = {'layers': config.num_hidden_layers, 'heads': config.num_attention_heads}
            mend = ', and bs.mean_contexts makes it'
            check_shape('replacement', replacement, mend, **sizes, width=config.head_size)
        mesh = compute.mesh
        params, devices, place = contexts.on_devices(pretrained.params, mesh)
        groups = 1 if mesh is None else mesh.shape.get(MASKS, 1)
        spread = NamedSharding(mesh, PartitionSpec((DATA, MASKS))) if mesh and groups > 1 else None
        distinct, which = np.unique(masks, axis=0, return_inverse=True)
        return cls(
            setting=Static(config, baseline, spread),
            params=params,
            layers=contexts.layers_of(params),
            masks=distinct,
            which=which.reshape(-1),
            tokens=devices * groups * (compute.chunk_tokens or default_chunk_tokens()),
            devices=devices,
            groups=groups,
            place=place,
            replacement=replacement,
        )

    @property
    def whole_layers(self) -> int:
        """The number of layers that are run for all tokens: all, unless logits read [CLS] alone."""
        config = self.setting.config
        # The last layer averages hidden states, of which rotated values are not the projection.
        reads_first = config.head == SEQUENCES and config.classifier_pooling == 'cls'
        reads_first = reads_first and not config.rotary_value
        if config.head == EMBEDDING and config.pooling is not None:
            reads_first = config.pooling.reads_first
        return len(self.layers) - reads_first

    @property
    def passes(self) -> float:
        """The number of passes over the whole model that take about as long."""
        return max(_PASSES_OF_A_MASK * len(self.masks), 1.0)

    @property
    def lacks_replacement(self) -> bool:
        """Whether the baseline needs a replacement that was not given."""
        return self.setting.baseline in OUTPUT_BASELINES and self.replacement is None

    def replacing(
        self, pretrained: Pretrained, batches: Sequence[Batch], donor_seed: int, mesh: Mesh | None
    ) -> 'Descent':
        """Return a descent with the replacement that it lacks, made from all batches."""
        if not self.lacks_replacement:
            return self
        if self.setting.baseline == 'mean':
            replacement = contexts.mean_contexts(pretrained, batches, mesh=mesh)
        else:
            replacement = Donors.drawn(batches, seed=donor_seed)
        return dataclasses.replace(self, replacement=replacement)

    def logits(self, batch: Batch) -> Float[np.ndarray, 'given B *T C']:
        """Return the logits of a batch under all masks, in the order in which they were given."""
        logits = np.empty((len(self.masks), *self.answer_shape(batch)), np.float32)
        for members, rows, found in self.steps(batch, np.arange(len(self.masks))):
            logits[np.ix_(members, rows)] = found
        return logits[self.which]

    def answer_shape(self, batch: Batch) -> tuple[int, ...]:
        """Return the shape of the logits of a batch under one mask, as in `Swept`."""
        config = self.setting.config
        rows, length = np.shape(batch.input_ids)
        if config.head == SEQUENCES:
            return rows, config.num_labels
        if config.head == EMBEDDING:
            assert config.pooling is not None
            return rows, config.hidden_size * len(config.pooling.modes)
        return (rows, 1) if config.head == MASKED_LM else (rows, length, config.num_labels)

    def steps(
        self, batch: Batch, members: Int[np.ndarray, ' wanted']
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the logits [m, b, ...] that each call computes, for the caller to keep.

        Before them come the indices [m] of masks, which are some of `members`, and [b] of rows.
        """
        if self.setting.config.head == MASKED_LM and not isinstance(batch, MaskedBatch):
            raise ValueError(
                'A masked LM is asked for hidden wordpieces: give the batches of bs.mask_words.'
            )
        for rows in _pieces(batch, self.tokens // self.groups, self.devices):
            piece = jax.tree.map(operator.itemgetter(rows), batch)
            for computed, found in one_behind(self._run(piece, members)):
                yield computed, rows, np.swapaxes(found, 0, 1)[: len(computed)]

    def _run(self, batch: Batch, members) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield indices of masks and logits [B, m, C], of which those past the indices are void."""
        replacements = self._replacements(batch, members)
        batch = self.place(batch)
        hidden, scopes = layers.embed(self.setting, self.params['embeddings'], batch)
        of_kind = [scope_of(scopes, kind) for kind in range(len(scopes.visible))]
        of_layer = [of_kind[kind] for kind in kinds_of_layers(self.setting.config)]
        yield from self._walk(hidden, Piece(batch, of_layer, replacements), 0, members)

    def _replacements(self, batch: Batch, members) -> list[Any]:
        """Return what replaces the contexts of disabled heads in each layer, where it is needed."""
        config, needed = self.setting.config, (self.masks[members] != 1).any(axis=(0, 2))
        if self.replacement is None or not needed.any():
            return [None] * len(self.layers)
        if isinstance(self.replacement, np.ndarray):
            every = self.replacement[:, None, None]
            return [each if wanted else None for each, wanted in zip(every, needed, strict=True)]
        lent, tokens = self.place(self.replacement.of(batch, padding=config.pad_token_id))
        intact = contexts.intact_contexts(Bert(config), self.params, lent)
        return [
            layers.lend(intact[:, layer], tokens) if wanted else None
            for layer, wanted in enumerate(needed)
        ]

    def _walk(self, hidden, piece, first, members):
        """Go on from the hidden states [B, T, D] that enter layer `first` under all members."""
        examples, length = piece.batch.attention_mask.shape
        for layer in range(first, self.whole_layers):
            params = self.layers[layer]
            distinct, which = np.unique(self.masks[members, layer], axis=0, return_inverse=True)
            which = which.reshape(-1)
            if len(distinct) == 1:
                hidden = self._run_layer(layer, hidden, piece, distinct)
                continue
            replacement = piece.replacements[layer]
            scope = piece.scopes[layer]
            opened = *layers.open_layer(self.setting, params, hidden, scope, replacement), scope
            alone, unchanged = [], None
            for number, head_mask in enumerate(distinct):
                group = members[which == number]
                if (head_mask == 1).all():
                    unchanged = group
                elif len(group) == 1:
                    alone.append(group[0])
                else:
                    branch = self._close(layer, opened, group[:1])
                    yield from self._walk(branch, piece, layer + 1, group)
            for chunk, filled in self._chunks(layer, np.array(alone, int), examples * length):
                yield chunk, self._finish(layer, opened, piece, filled)
            if unchanged is None:
                return
            members = unchanged
            hidden = layers.leave_layer(self.setting, params, opened[0], scope)
        if self.whole_layers == len(self.layers):
            # Masks that are the same in all layers are one mask.
            yield members, self._read_all(hidden, piece)
            return
        # A call computes one row of [CLS] per mask and example, at most `tokens` of them.
        most = max(self.tokens // examples, 1)
        size = _round_up(min(len(members), most))
        for start in range(0, len(members), size):
            chunk = members[start : start + size]
            masks = self.masks[np.resize(chunk, size), -1]
            yield chunk, self._logits(hidden, piece, np.tile(masks, (examples, 1, 1)))

    def _chunks(self, layer, members, tokens):
        """Yield masks that change about equally many heads, and these filled up to few sizes."""
        most = max(self.tokens // tokens, 1)
        widths = self._changed(layer, members)
        for width in np.unique(widths):
            group = members[widths == width]
            size = _round_up(-(-len(group) // -(-len(group) // most)), most)
            size = -(-size // self.groups) * self.groups
            for start in range(0, len(group), size):
                chunk = group[start : start + size]
                yield chunk, np.resize(chunk, size)

    def _changed(self, layer, members):
        """Return how many heads each mask changes in a layer, rounded up to one of few numbers."""
        heads = self.masks.shape[-1]
        counts = (self.masks[members, layer] != 1).sum(axis=-1)
        return np.array([_round_up(int(count), heads) for count in counts], int)

    def _close(self, layer, opened, members):
        """Return the output [B * M, T, D] of an opened layer under each of the masks."""
        amounts = 1 - self.masks[members, layer]
        width = self._changed(layer, members).max()
        heads = np.argsort(amounts == 0, axis=-1, kind='stable')[:, :width]
        return layers.close_layer(
            self.setting,
            self.layers[layer],
            *opened,
            heads,
            np.take_along_axis(amounts, heads, axis=-1),
        )

    def _run_layer(self, layer, hidden, piece, masks):
        """Return the output [Z, T, D] of a layer under masks [M, N], if these change anything."""
        head_mask = replacement = None
        if (masks != 1).any():
            head_mask = np.tile(masks, (len(piece.batch.input_ids), 1))
            replacement = piece.replacements[layer]
        return layers.run_layer(
            self.setting, self.layers[layer], hidden, piece.scopes[layer], head_mask, replacement
        )

    def _finish(self, layer, opened, piece, members):
        """Return the logits [B, M, C] of masks that share nothing after an opened layer."""
        examples = len(piece.batch.input_ids)
        hidden = self._close(layer, opened, members)
        for later in range(layer + 1, self.whole_layers):
            hidden = self._run_layer(later, hidden, piece, self.masks[members, later])
        if self.whole_layers == len(self.layers):
            return self._read_all(hidden, piece)
        head_masks = np.tile(self.masks[members, -1], (examples, 1))[:, None]
        logits = self._logits(hidden, piece, head_masks)
        return logits.reshape(examples, len(members), -1)

    def _read_all(self, hidden, piece):
        """Return the logits [B, M, ...] of the output [B * M, T, D] of the last layer."""
        batch = piece.batch
        if self.setting.config.head == MASKED_LM:
            embedding = self.params['embeddings']['word']['embedding']
            logits = layers.read_words(
                self.setting, self.params, embedding, hidden, batch.places, batch.words
            )
        else:
            logits = layers.read_all(self.setting, self.params, hidden, batch.attention_mask)
        return logits.reshape(len(batch.input_ids), -1, *logits.shape[1:])

    def _logits(self, hidden, piece, head_masks):
        """Return the logits [Z, M, C] of hidden states [Z, T, D] that enter the last layer."""
        return layers.last_layer(
            self.setting,
            self.layers[-1],
            self.params,
            hidden,
            piece.scopes[-1],
            head_masks,
            piece.replacements[-1],
        )


def _round_up(count: int, most: int | None = None) -> int:
    """Return the first of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is large enough, up to `most`."""
    power = 1 << max(count - 1, 0).bit_length()
    size = power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power
    return size if most is None else min(size, most)
