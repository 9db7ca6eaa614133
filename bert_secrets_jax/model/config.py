"""Hyperparameters of BERT and its relatives, with the names of Hugging Face's `config.json`."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Annotated, Any, Literal, get_args

from bert_secrets_jax.checks import check_name, either, shortened
from bert_secrets_jax.model.embedding import Pooling
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.families.family import Family
from bert_secrets_jax.model.names import (
    GLOBAL,
    HEADS,
    LOCAL,
    MASKED_LM,
    QUESTIONS,
    SCORE_PARTS,
    SEQUENCES,
    TOKENS,
)
from bert_secrets_jax.ranges import Range, check_ranges

# 'tf32x3' is float32 of which an NVIDIA GPU multiplies two halves in TF32, three times.
ComputeDtype = Literal['float32', 'tf32x3', 'bfloat16']
COMPUTE_DTYPES: tuple[ComputeDtype, ...] = get_args(ComputeDtype)
ACTIVATIONS = ('gelu', 'gelu_new', 'gelu_pytorch_tanh', 'relu', 'silu')
# Numbers of several fields; every published model is far within its ranges.
Rate = Annotated[float, Range(0.0, 1.0, whole=False, without=1.0)]
RateOrNone = Annotated[float | None, Range(0.0, 1.0, whole=False, without=1.0, optional=True)]
Base = Annotated[float | None, Range(1.0, 1e12, whole=False, optional=True)]
# [CLS], a token and [SEP].
_FEWEST = 3
# No checkpoint has this one: it has no weights, and gives the embedding of a text.
EMBEDDING = 'embedding'
ANSWER = ('start', 'end')
# The end of the name of each head's class in `transformers`.
CLASSES: Mapping[str, str] = {
    SEQUENCES: 'ForSequenceClassification',
    TOKENS: 'ForTokenClassification',
    QUESTIONS: 'ForQuestionAnswering',
    MASKED_LM: 'ForMaskedLM',
}


@dataclasses.dataclass(frozen=True)
class LayerKind:
    """The differences between layers of one model, besides their parameters.

    Attributes:
      reach: The greatest distance that attention sees; None sees the whole text.
      rope_theta: The base of rotary positions; None has none.
      normed: Whether LayerNorm stands before attention, where the family has it there.
      convolved: Whether a convolution over the embeddings is added to its output.
    """

    reach: int | None = None
    rope_theta: float | None = None
    normed: bool = True
    convolved: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The hyperparameters of one BERT. Names are those of Hugging Face's `config.json`.

    Attributes:
      model_type: One of `FAMILIES`: 'bert', or a relative that shares its arithmetic.
      vocab_size: Number of wordpieces.
      hidden_size: Width of the hidden states (D).
      embedding_size: Width of the embeddings, if they are projected to another one (ELECTRA,
        ALBERT, DeBERTa).
      num_hidden_layers: Number of layers (L).
      num_attention_heads: Number of heads per layer (N); must divide `hidden_size`.
      intermediate_size: Width of the feed-forward layer.
      hidden_act: Activation of the feed-forward layer. 'gelu' is the exact GELU (erf), as in BERT;
        'gelu_new' and 'gelu_pytorch_tanh' are its tanh approximation, and 'silu' is x / (1 + e^-x).
      hidden_dropout_prob, attention_probs_dropout_prob: Dropout rates while training, of hidden
        states and of each attention probability.
      classifier_dropout: Dropout rate of the pooled output; None means `hidden_dropout_prob`.
      max_position_embeddings: Number of positions; see `max_length`.
      type_vocab_size: Number of segments, which matter from two on; 0 has no embeddings of them.
      layer_norm_eps: Epsilon of LayerNorm: 1e-12 in BERT. Flax's default (1e-6) makes another
        model.
      initializer_range: Standard deviation of freshly initialised weights.
      pad_token_id, mask_token_id: Numbers of [PAD] and, where `token_dropout` needs it, of [MASK].
      add_pooler: Whether the model has a pooler (in BERT, dense and tanh over [CLS]).
      num_hidden_groups: Number of different layers, each used several times in a row (ALBERT), if
        there are fewer than layers.
      num_key_value_heads: Number of different keys and values of a layer, each of several heads in
        a row (EuroBERT), if there are fewer than heads; see `key_value_heads`.
      use_task_id, task_type_vocab_size: Whether there are embeddings of tasks, and of how many
        (ERNIE).
      position_embedding_type: 'absolute' (embeddings), 'rotary' (queries and keys are rotated) or
        'alibi' (scores fall with distance).
      rope_theta, local_rope_theta: Bases of the rotary positions, of global and of local layers.
      layer_types: [L] Whether each layer is global ('full_attention') or local
        ('sliding_attention'); None has all of them global.
      local_attention: Width of the window of local layers: half of it on either side.
      attention_bias, mlp_bias, norm_bias, classifier_bias: Whether these layers have a bias.
      classifier_pooling: The input of the pooler: [CLS] ('cls') or the mean of tokens ('mean');
        with 'late' it reads each token, and the classifier the mean of what it makes of them.
      emb_layer_norm_before: Whether the embeddings are normalised.
      token_dropout: Whether [MASK] has zeros, and other embeddings are scaled to make up for it
        (ESM).
      relative_attention: Whether scores have summands for the distance of query and key (DeBERTa).
      pos_att_type: Which ones: 'c2p', 'p2c', or both; see `bs.score_parts`.
      share_att_key: Whether distances have keys and queries through the weights of content.
      position_buckets: Number of buckets of distances in each direction; below 1, there are none.
      max_relative_positions: The longest distance, and 1; below 1, `max_position_embeddings`.
      norm_rel_ebd: Whether the embeddings of distances are normalised: 'layer_norm' or 'none'.
      position_biased_input: Whether there are embeddings of positions besides.
      conv_kernel_size, conv_groups, conv_act: The tokens that the convolution after the first layer
        sees, or 0; the groups of its dimensions; its activation.
      rope_frequencies: [H/2] Frequencies of the rotary positions, where the weights have others
        than `rope_theta` gives; old ones were rounded to half precision.
      rotary_value: Whether values are rotated, too (RoFormer).
      rotary_rounding: The type to which the weights round RoFormer's table of sinusoids.
      add_contact_head: Whether the model has ESM's head that predicts contacts from all maps.
      head: The kind of head on the encoder: 'sequence_classification' (or regression),
        'token_classification', 'question_answering' (where the answer starts and ends), or
        'masked_lm'. The first needs `label_names`; without any, nothing stands there. With
        'embedding', the embedding of each text takes the place of logits (`bs.with_pooling`).
      label_names: Names of the classes. No name means no classifier; one name means regression.
        Those of an answer are always 'start' and 'end'. A masked LM has none.
      multi_label: Whether an input may have several classes, each with a logistic regression.
      pooling: How a text gets its embedding; None where the checkpoint does not say so.
      tie_word_embeddings: Whether a masked LM predicts by the embeddings of the wordpieces.
      pruned_heads: [L] The heads that each layer has lost, from 0 on; () where none has. The layers
        of a model that has lost heads have parameters of their own shapes, and are not stacked. A
        tuple of L empty ones is a whole model whose layers are kept apart like that.
      dtype: Type in which matrix products are computed: 'float32'; 'tf32x3', which on NVIDIA GPUs
        comes close to it in less time; or 'bfloat16'. All else stays float32.
    """

    model_type: str = 'bert'
    vocab_size: Annotated[int, Range(1, 10_000_000)] = 30522
    hidden_size: Annotated[int, Range(1, 100_000)] = 768
    embedding_size: Annotated[int | None, Range(1, 100_000, optional=True)] = None
    num_hidden_layers: Annotated[int, Range(1, 1_000)] = 12
    num_attention_heads: Annotated[int, Range(1, 1_000)] = 12
    intermediate_size: Annotated[int, Range(1, 1_000_000)] = 3072
    hidden_act: str = 'gelu'
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    classifier_dropout: RateOrNone = None
    max_position_embeddings: Annotated[int, Range(1, 10_000_000)] = 512
    type_vocab_size: Annotated[int, Range(0, 10_000)] = 2
    layer_norm_eps: Annotated[float, Range(1e-20, 0.1, whole=False)] = 1e-12
    initializer_range: Annotated[float, Range(0.0, 1.0, whole=False)] = 0.02
    pad_token_id: Annotated[int, Range(0, 10_000_000)] = 0
    num_hidden_groups: Annotated[int | None, Range(1, 1_000, optional=True)] = None
    num_key_value_heads: Annotated[int | None, Range(1, 1_000, optional=True)] = None
    use_task_id: bool = False
    task_type_vocab_size: Annotated[int | None, Range(1, 10_000, optional=True)] = None
    position_embedding_type: str = 'absolute'
    rope_theta: Base = None
    local_rope_theta: Base = None
    layer_types: tuple[str, ...] | None = None
    local_attention: Annotated[int | None, Range(0, 10_000_000, optional=True)] = None
    attention_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True
    classifier_bias: bool = True
    classifier_pooling: str = 'cls'
    emb_layer_norm_before: bool = True
    token_dropout: bool = False
    mask_token_id: Annotated[int | None, Range(0, 10_000_000, optional=True)] = None
    relative_attention: bool = False
    pos_att_type: tuple[str, ...] = ()
    share_att_key: bool = False
    position_buckets: Annotated[int, Range(-1, 1_000_000)] = -1
    max_relative_positions: Annotated[int, Range(-1, 1_000_000)] = -1
    norm_rel_ebd: str = 'none'
    position_biased_input: bool = True
    conv_kernel_size: Annotated[int, Range(0, 1_000)] = 0
    conv_groups: Annotated[int, Range(1, 100_000)] = 1
    conv_act: str = 'tanh'
    rope_frequencies: tuple[float, ...] | None = None
    rotary_value: bool = False
    rotary_rounding: str = 'float32'
    add_pooler: bool = True
    add_contact_head: bool = False
    head: str = SEQUENCES
    label_names: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: Pooling | None = None
    tie_word_embeddings: bool = True
    pruned_heads: tuple[tuple[int, ...], ...] = ()
    dtype: ComputeDtype = 'float32'

    def __post_init__(self):
        if not isinstance(self.model_type, str) or self.model_type not in FAMILIES:
            raise ValueError(not_implemented(self.model_type))
        check_ranges(self)
        for faults in (self._faults_of_numbers, self._faults_of_layers, self._faults_of_head):
            for fault in faults():
                raise ValueError(fault)

    def _faults_of_numbers(self) -> Iterator[str]:
        """Yield what does not fit together, or the family."""
        if self.hidden_size % self.num_attention_heads:
            yield (
                f'num_attention_heads={self.num_attention_heads} must divide '
                f'hidden_size={self.hidden_size}.'
            )
        if self.pad_token_id >= self.vocab_size:
            yield (
                f'pad_token_id={self.pad_token_id} is none of the vocab_size={self.vocab_size} '
                'wordpieces.'
            )
        for name, value in fixed(self.family).items():
            if getattr(self, name) != value:
                yield (
                    f'{name}={getattr(self, name)!r}: with model_type={self.model_type!r} it is '
                    f'always {value!r}.'
                )
        for name, choices in CHOICES.items():
            known = dict.fromkeys(self.family.values.get(name, {}).values()) or choices
            check_name(name, getattr(self, name), known)
        if self.max_length < _FEWEST:
            yield (
                f'max_position_embeddings={self.max_position_embeddings} with '
                f'pad_token_id={self.pad_token_id} leaves texts {max(self.max_length, 0)} '
                f'positions, and the shortest has {_FEWEST} tokens.'
            )

    def _faults_of_layers(self) -> Iterator[str]:
        is_rotary, kinds = self.position_embedding_type == 'rotary', self.layer_types
        layers, heads = self.num_hidden_layers, self.num_attention_heads
        if kinds is not None:
            if len(kinds) != layers or not set(kinds) <= {GLOBAL, LOCAL}:
                yield (
                    f'layer_types={shortened(kinds)} must be one of {either((GLOBAL, LOCAL))} for '
                    f'each of the {layers} layers.'
                )
            if LOCAL in kinds and None in (self.local_attention, self.local_rope_theta):
                yield 'Local layers need local_attention and local_rope_theta.'
        shared, groups = self.num_key_value_heads, self.num_hidden_groups
        if is_rotary and self.rope_theta is None:
            yield 'rope_theta must be given for rotary positions.'
        if is_rotary and self.head_size % 2:
            yield f'Rotary positions need heads of an even width, not of {self.head_size}.'
        if self.token_dropout and self.mask_token_id is None:
            yield 'token_dropout=True needs mask_token_id.'
        if shared is not None and heads % shared:
            yield f'num_key_value_heads={shared} must divide num_attention_heads={heads}.'
        if groups is not None and groups > layers:
            yield f'num_hidden_groups={groups} is more than the {layers} layers.'
        kinds, size, (_, buckets, most) = self.pos_att_type, self.conv_kernel_size, self.distances
        most = 2 * most - 3
        # With more of them than distances, all have buckets of their own.
        each = buckets // 2 >= self.max_position_embeddings - 1 > 0
        fit = buckets < 1 or 1 < buckets <= most or each
        for name, fits, needed in (
            ('pos_att_type', kinds in ((), ('c2p',), ('p2c',), ('c2p', 'p2c')), "'c2p' and 'p2c'"),
            ('position_buckets', fit, f'from 2 to {most}, or -1'),
            ('conv_kernel_size', not size or size % 2, 'odd, or 0'),
            ('conv_groups', not self.hidden_size % self.conv_groups, 'a divisor of hidden_size'),
        ):
            if not fits:
                yield f'{name}={shortened(getattr(self, name))} must be {needed} here.'
        pruned, known = self.pruned_heads, range(heads)
        fits = isinstance(pruned, tuple) and len(pruned) in (0, layers)
        if not fits or not all(
            isinstance(gone, tuple) and list(gone) == [head for head in known if head in gone]
            for gone in pruned
        ):
            yield (
                f'pruned_heads={shortened(pruned)} must be a tuple of the heads removed from each '
                f'of the {layers} layers, ascending numbers from 0 to {known[-1]}.'
            )
        if len(set(zip(self.groups, pruned, strict=False))) > len(set(self.groups)):
            yield (
                f'pruned_heads={shortened(pruned)} differ between layers that are one layer: with '
                f'num_hidden_groups={self.num_hidden_groups}, layers share their heads.'
            )
        for name in self.family.defaults:
            if getattr(self, name) is None:
                yield f'{name} must be given with model_type={self.model_type!r}.'

    def _faults_of_head(self) -> Iterator[str]:
        names, head = self.label_names, f'head={self.head!r}'
        texts = [name for name in names if isinstance(name, str) and name.strip()]
        is_part = self.add_pooler and self.family.pooler_is_of_classifier
        needed = needs_pooler(self.family, self.head, names)
        if len({*texts}) < len(names):
            yield f'label_names={shortened(names)} must be texts, none empty or given twice.'
        if self.head == MASKED_LM and names:
            yield f'{head} predicts wordpieces, and takes no label_names.'
        if self.head == EMBEDDING and (names or self.pooling is None):
            yield f'{head} needs pooling, and takes no label_names.'
        if self.head == TOKENS and not names:
            yield f'{head} needs label_names.'
        if self.head == QUESTIONS and names != ANSWER:
            yield f'{head} has label_names={ANSWER}, not {shortened(names)}.'
        if self.multi_label and (self.head != SEQUENCES or not names):
            yield f'multi_label=True needs label_names, and head={SEQUENCES!r}.'
        if needed and not self.add_pooler:
            yield 'A classifier stands on the pooled output: set add_pooler=True.'
        if is_part and not needed:
            yield (
                f'With model_type={self.model_type!r} the pooler is part of the classifier: give '
                'label_names, or set add_pooler=False.'
            )

    @property
    def labels_inputs(self) -> bool:
        """Whether the model gives each input one label, or the value of a regression."""
        return self.head == SEQUENCES and bool(self.label_names) and not self.multi_label

    @property
    def has_head(self) -> bool:
        """Whether anything stands on the encoder."""
        return bool(self.label_names) or self.head in (MASKED_LM, EMBEDDING)

    @property
    def family(self) -> Family:
        """How the model differs from BERT."""
        return FAMILIES[self.model_type]

    @property
    def max_length(self) -> int:
        """Number of tokens of the longest possible sequence."""
        counted = self.has_positions and self.family.positions_after_padding
        return self.max_position_embeddings - (self.pad_token_id + 1 if counted else 0)

    @property
    def longest(self) -> int:
        """The same, or fewer tokens if the model is said to embed no longer texts."""
        most = None if self.pooling is None else self.pooling.max_length
        return min(most or self.max_length, self.max_length)

    @property
    def has_positions(self) -> bool:
        """Whether there are embeddings of positions."""
        return self.position_embedding_type == 'absolute' and self.position_biased_input

    @property
    def distances(self) -> tuple[int, int, int]:
        """Half the rows of DeBERTa's table of distances, its buckets, the longest one plus 1."""
        most, buckets = self.max_relative_positions, self.position_buckets
        most = self.max_position_embeddings if most < 1 else most
        return (most if buckets < 1 else buckets), buckets, most

    @property
    def score_parts(self) -> tuple[str, ...]:
        """The summands of the scores that query and key give: in DeBERTa up to three."""
        return (SCORE_PARTS[0], *(self.pos_att_type if self.relative_attention else ()))

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer, from the first to the last."""
        theta = None if self.has_positions else self.rope_theta
        kinds = []
        for number, kind in enumerate(self.layer_types or (GLOBAL,) * self.num_hidden_layers):
            normed = bool(number) or not self.family.first_layer_unnormed
            convolved = not number and self.conv_kernel_size > 0
            if kind == LOCAL:
                assert self.local_attention is not None
                kinds.append(LayerKind(self.local_attention // 2, self.local_rope_theta, normed))
            else:
                kinds.append(LayerKind(None, theta, normed, convolved))
        return tuple(kinds)

    @property
    def groups(self) -> tuple[int, ...]:
        """The group of each layer: layers of one group are one layer, used several times."""
        return groups_of(self.num_hidden_layers, self.num_hidden_groups)

    @property
    def key_value_heads(self) -> tuple[int, ...]:
        """[N] The number of the keys and values of each head: heads of one number share them.

        Parameters hold a copy for each head, and fine-tuning moves the copies together. So a mask,
        a patch or a contribution is of one head, and leaves those that share its values alone.
        """
        return groups_of(self.num_attention_heads, self.num_key_value_heads)

    @property
    def heads_left(self) -> tuple[tuple[int, ...], ...]:
        """The heads that each layer has, from 0 on."""
        heads = range(self.num_attention_heads)
        pruned = self.pruned_heads or ((),) * self.num_hidden_layers
        return tuple(tuple(head for head in heads if head not in gone) for gone in pruned)

    @property
    def head_size(self) -> int:
        """Width of one head (H)."""
        return self.hidden_size // self.num_attention_heads

    @property
    def array_dtype(self) -> str:
        """Type of the arrays that are multiplied and of those that come out."""
        return 'bfloat16' if self.dtype == 'bfloat16' else 'float32'

    @property
    def num_labels(self) -> int:
        """Number of classes (C); 1 for regression, 0 for no classifier or a masked LM."""
        return len(self.label_names)

    @property
    def num_heads(self) -> int:
        """Number of heads in the whole model (L * N), with those that it has lost."""
        return self.num_hidden_layers * self.num_attention_heads

    @property
    def summary(self) -> str:
        """A description of the model in a few words: 'bert, 12 layers, 12 heads, width 768'."""
        sizes = f'{self.num_hidden_layers} layers, {self.num_attention_heads} heads'
        parts = [self.model_type, sizes, f'width {self.hidden_size}']
        if any(self.pruned_heads):
            gone = sum(map(len, self.pruned_heads))
            parts.append(f'{gone} of {self.num_heads} heads removed')
        classes = f'{self.num_labels} classes'
        heads = {
            QUESTIONS: 'answers',
            MASKED_LM: 'masked LM',
            TOKENS: f'{classes} of tokens',
            EMBEDDING: 'embedding',
        }
        if self.multi_label:
            classes += ', several at once'
        elif self.num_labels == 1:
            classes = 'regression'
        if self.has_head:
            parts.append(heads.get(self.head, classes))
        return ', '.join(parts)


# The values that a field may have, where these are a few.
CHOICES: Mapping[str, tuple[Any, ...]] = {
    'dtype': COMPUTE_DTYPES,
    'head': (*HEADS, EMBEDDING),
    'position_embedding_type': ('absolute', 'rotary', 'alibi'),
    'classifier_pooling': ('cls', 'mean', 'late'),
    'rotary_rounding': ('float32', 'float16', 'bfloat16'),
    'norm_rel_ebd': ('none', 'layer_norm'),
    'hidden_act': ACTIVATIONS,
    'conv_act': ('tanh', *ACTIVATIONS),
} | {each.name: (False, True) for each in dataclasses.fields(BertConfig) if each.type is bool}


def groups_of(layers: int, count: int | None) -> tuple[int, ...]:
    """Return the group of each layer or head, of `count` groups; None is one for each."""
    return tuple(layer * (count or layers) // layers for layer in range(layers))


def fixed(family: Family) -> dict[str, Any]:
    """Return the values of all fields that the config.json of a family does not have."""
    of_some = {name for each in FAMILIES.values() for name in each.reads} - set(family.reads)
    return {
        field.name: field.default
        for field in dataclasses.fields(BertConfig)
        if field.name in of_some
    } | dict(family.always)


def needs_pooler(family: Family, head: str, label_names: tuple[str, ...]) -> bool:
    """Return whether a pooler stands under a head."""
    of_tokens = head not in (SEQUENCES, EMBEDDING)
    return family.pools_tokens if of_tokens else bool(label_names)


def not_implemented(model_type: Any) -> str:
    """Return why models of a type are not read, and which types are."""
    # The module of these lists can only be loaded with PyTorch, which a user need not have.
    file = resources.files('transformers.models.auto').joinpath('modeling_auto.py')
    lists = dict(
        re.findall(r'(?ms)^MODEL_FOR_(\w+)_MAPPING_NAMES = (.*?)^\)', file.read_text('utf-8'))
    )
    causal, masked, translating = (
        f'("{model_type}", ' in lists.get(kind, '')
        for kind in ('CAUSAL_LM', 'MASKED_LM', 'SEQ_TO_SEQ_CAUSAL_LM')
    )
    why = ': it is a decoder, or has one' * (causal > masked or translating)
    return (
        f'model_type={shortened(model_type)} is not implemented{why}; these are: '
        f'{", ".join(map(repr, FAMILIES))}'
    )
