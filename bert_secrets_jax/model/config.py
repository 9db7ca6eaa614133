"""What a BERT is made of, read from and written to Hugging Face's `config.json`."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal

ComputeDtype = Literal['float32', 'bfloat16']
ACTIVATIONS = ('gelu', 'gelu_new', 'gelu_pytorch_tanh', 'relu')


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The hyperparameters of one BERT. Names are those of Hugging Face's `config.json`.

    Attributes:
      vocab_size: number of wordpieces.
      hidden_size: width of the hidden states (D).
      num_hidden_layers: number of layers (L).
      num_attention_heads: heads per layer (N); must divide `hidden_size`.
      intermediate_size: width of the feed-forward layer.
      hidden_act: 'gelu' is the exact one (erf), as in BERT; 'gelu_new' and 'gelu_pytorch_tanh' are
        the tanh approximation.
      hidden_dropout_prob: dropout on hidden states, while training.
      attention_probs_dropout_prob: dropout on attention probabilities, per element, while training.
      classifier_dropout: dropout on the pooled output; None means `hidden_dropout_prob`.
      max_position_embeddings: longest sequence.
      type_vocab_size: number of segments.
      layer_norm_eps: 1e-12 in BERT; Flax's own default (1e-6) is another model.
      initializer_range: standard deviation of freshly initialised weights.
      pad_token_id: id of [PAD].
      add_pooler: whether the model has BERT's pooler (dense and tanh over [CLS]).
      label_names: names of the classes; empty for no classifier. One name means regression.
      dtype: what matrix products are computed in. Parameters, softmax and LayerNorm stay float32.
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = 'gelu'
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0
    add_pooler: bool = True
    label_names: tuple[str, ...] = ()
    dtype: ComputeDtype = 'float32'

    def __post_init__(self):
        for name in ('vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads'):
            if getattr(self, name) < 1:
                raise ValueError(f'{name}={getattr(self, name)} must be at least 1.')
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f'{self.num_attention_heads=} must divide {self.hidden_size=}.')
        if self.hidden_act not in ACTIVATIONS:
            raise ValueError(
                f'{self.hidden_act=} is not implemented; known: {", ".join(ACTIVATIONS)}.'
            )
        if self.dtype not in ('float32', 'bfloat16'):
            raise ValueError(f"{self.dtype=} must be 'float32' or 'bfloat16'.")
        if self.label_names and not self.add_pooler:
            raise ValueError('A classifier stands on the pooled output: set add_pooler=True.')

    @property
    def head_size(self) -> int:
        """Width of one head (H)."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_labels(self) -> int:
        """Number of classes (C); 1 for regression, 0 for no classifier."""
        return len(self.label_names)

    @property
    def num_heads(self) -> int:
        """Number of heads in the whole model (L * N)."""
        return self.num_hidden_layers * self.num_attention_heads


# Keys of config.json that our arithmetic depends on, read as they are.
_READ = tuple(
    field.name
    for field in dataclasses.fields(BertConfig)
    if field.name not in ('add_pooler', 'label_names', 'dtype')
)
# Keys that would change the arithmetic if they had any other value than these.
_MUST_BE: Mapping[str, tuple[Any, ...]] = types.MappingProxyType(
    {
        'model_type': ('bert',),
        'position_embedding_type': ('absolute',),
        'is_decoder': (False,),
        'is_encoder_decoder': (False,),
        'add_cross_attention': (False,),
        'pruned_heads': ({}, None),
        'quantization_config': (None,),
    }
)
# Bookkeeping that no layer reads: provenance, generation and tokenizer settings, loss choice, and
# leftovers of older releases.
_IGNORED = frozenset(
    """_name_or_path _attn_implementation _attn_implementation_autoset attn_implementation
    architectures auto_map bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id
    unk_token_id bad_words_ids begin_suppress_tokens chunk_size_feed_forward
    cross_attention_hidden_size decoder_start_token_id directionality diversity_penalty do_sample
    dtype torch_dtype early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label label2id
    length_penalty max_length min_length model_max_length no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past
    output_scores pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
    pooler_size_per_head pooler_type prefix problem_type remove_invalid_values repetition_penalty
    return_dict return_dict_in_generate sentence_transformers suppress_tokens task_specific_params
    temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p
    torchscript transformers_version typical_p use_bfloat16 use_cache xla_device""".split()
)


def read_config(values: Mapping[str, Any], *, ignore: tuple[str, ...] = ()) -> dict[str, Any]:
    """Turn `config.json` into arguments of `BertConfig`, refusing what we do not implement.

    Args:
      values: the parsed JSON object.
      ignore: names of further keys to disregard.

    Returns:
      Keyword arguments for `BertConfig`. Pooler and classifier are left to the weights, which say
      what there is.

    Raises:
      ValueError: names every key that is missing, has a value with another arithmetic, or is
        unknown.
    """
    problems = []
    required = (
        'vocab_size',
        'hidden_size',
        'num_hidden_layers',
        'num_attention_heads',
        'intermediate_size',
    )
    missing = [name for name in required if name not in values]
    if missing:
        problems.append(f'missing: {", ".join(missing)}')
    for name, allowed in _MUST_BE.items():
        if name in values and name not in ignore and values[name] not in allowed:
            problems.append(f'{name}={values[name]!r} is not implemented (only {allowed[0]!r} is)')
    unknown = sorted(set(values) - set(_READ) - set(_MUST_BE) - _IGNORED - set(ignore))
    if unknown:
        problems.append(
            f'unknown: {", ".join(f"{name}={values[name]!r}" for name in unknown)} '
            f'(if it changes no arithmetic, pass ignore_config={tuple(unknown)!r})'
        )
    if problems:
        raise ValueError('; '.join(problems) + '.')
    return {name: values[name] for name in _READ if name in values}


def write_config(config: BertConfig) -> dict[str, Any]:
    """Return the content of a `config.json` that Hugging Face and `read_config` understand."""
    values = {name: getattr(config, name) for name in _READ}
    values |= {
        'model_type': 'bert',
        'position_embedding_type': 'absolute',
        'dtype': 'float32',
    }
    if config.label_names:
        values['architectures'] = ['BertForSequenceClassification']
        values['id2label'] = {str(index): name for index, name in enumerate(config.label_names)}
        values['label2id'] = {name: index for index, name in enumerate(config.label_names)}
        values['problem_type'] = (
            'regression' if config.num_labels == 1 else 'single_label_classification'
        )
    else:
        values['architectures'] = ['BertModel']
    return values
