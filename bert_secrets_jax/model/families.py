"""How encoders differ from BERT: one frozen record per `model_type`, read wherever they differ."""

import dataclasses
from collections.abc import Mapping
from typing import Any

# Removed heads in config.json where `transformers` cannot remove any.
_OURS = 'bert_secrets_jax_pruned_heads'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """How the models of one `model_type` differ from BERT; the defaults are BERT's.

    Attributes:
      name: The prefix of their classes in `transformers`, as in `{name}ForSequenceClassification`.
      norm_first: Whether LayerNorm stands before attention and feed-forward layer (pre-LayerNorm),
        and once more after the last layer.
      first_layer_unnormed: Whether the attention of the first layer has no LayerNorm before it.
      gated: Whether the feed-forward layer multiplies its activation by a second projection.
      rms_norm: Whether norms divide by the root mean square and subtract no mean (RMSNorm).
      sinusoidal: Whether rotary positions turn each two neighbours, by a table of sinusoids
        (RoFormer), and not the first half of a head against the second.
      bias_of_gates: Whether the first projections of such a layer have a bias, if others have one.
      relative_buckets: The number of buckets of distances with a bias of the scores; 0 for none.
      positions_after_padding: Whether positions count as in fairseq: `pad_token_id` + 1, + 2, ...
        on every token but [PAD], whose position is `pad_token_id` itself.
      projects_always: Whether embeddings are projected even if they have the width of the model.
      projects_first: Whether they are projected before LayerNorm, and without a bias.
      zero_padding: Whether the embeddings of padding are set to 0.
      embedding_dropout, dropout_after_attention, dropout_in_feed_forward,
        dropout_after_feed_forward: Where training drops.
      pooler_act, pooler_norm: The activation of the dense layer under the classifier, and whether
        LayerNorm follows it. None is the activation of the feed-forward layers.
      pooler_is_of_classifier: Whether a model without classifier does not have that layer.
      dropout_before_pooler: Whether training drops inputs of that layer, too.
      pools_tokens: Whether that layer also stands under the heads of single tokens.
      lm_act: The activation in the masked-LM head; None is that of the feed-forward layers.
      lm_plain: Whether that head is the row of weights of each wordpiece alone, with biases where
        feed-forward layers have them.
      eos_token_id: The number of <eos> in the contact head; None without such a head.
      pruned_key: The key in config.json of the heads that each layer has lost: that of
        `transformers` before release 5 where that could remove heads, or one that is ours alone.
      reads, always: The fields that its config.json has and BERT's lacks, and values of others that
        it never has.
      keys: Our fields that have another name in config.json, and that name.
      former: Keys of older files, and those of today.
      values: Fields of which config.json has but some values, or names them otherwise: its names,
        and ours.
      defaults: Defaults of fields that config.json may omit; None is not allowed for them.
      must_be: Keys of config.json that would change the arithmetic with any other value.
      ignored: Keys of config.json that no layer reads.
      known_by: The settings that tell such a model in a repository with code of its own, where it
        has the `model_type` of another family.
      code: The `auto_map` of that repository if `transformers` lacks such models, so that models
        are written as the repository reads them.
    """

    name: str
    norm_first: bool = False
    first_layer_unnormed: bool = False
    gated: bool = False
    rms_norm: bool = False
    sinusoidal: bool = False
    bias_of_gates: bool = True
    relative_buckets: int = 0
    positions_after_padding: bool = False
    projects_always: bool = False
    projects_first: bool = False
    zero_padding: bool = False
    embedding_dropout: bool = True
    dropout_after_attention: bool = True
    dropout_in_feed_forward: bool = False
    dropout_after_feed_forward: bool = True
    pooler_act: str | None = 'tanh'
    pooler_norm: bool = False
    pooler_is_of_classifier: bool = False
    dropout_before_pooler: bool = False
    pools_tokens: bool = False
    lm_act: str | None = None
    lm_plain: bool = False
    eos_token_id: int | None = None
    pruned_key: str = 'pruned_heads'
    reads: tuple[str, ...] = ()
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    former: Mapping[str, str] = dataclasses.field(default_factory=dict)
    values: Mapping[str, Mapping[Any, Any]] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    always: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    must_be: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    known_by: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)


# A null is false to `transformers`.
_SWITCH = {None: False, False: False, True: True}
_OF_DISTANCES = (
    'embedding_size', 'relative_attention', 'position_buckets', 'max_relative_positions',
    'pos_att_type', 'share_att_key', 'norm_rel_ebd', 'position_biased_input', 'conv_kernel_size',
    'conv_groups', 'conv_act',
)  # fmt: skip
_ROBERTA = Family(
    name='Roberta',
    positions_after_padding=True,
    pooler_is_of_classifier=True,
    dropout_before_pooler=True,
    lm_act='gelu',
    defaults={'pad_token_id': 1},
)
_NOMIC = Family(
    name='NomicBert', gated=True, pooler_is_of_classifier=True, pruned_key=_OURS,
    reads=('rope_theta',),
    # Older keys, and those without an effect below, are of the repositories of nomic-ai.
    former={
        'n_embd': 'hidden_size', 'n_layer': 'num_hidden_layers', 'n_head': 'num_attention_heads',
        'n_inner': 'intermediate_size', 'n_positions': 'max_position_embeddings',
        'attn_pdrop': 'attention_probs_dropout_prob', 'resid_pdrop': 'hidden_dropout_prob',
        'layer_norm_epsilon': 'layer_norm_eps', 'rotary_emb_base': 'rope_theta',
    },
    defaults={
        'hidden_act': 'silu', 'hidden_dropout_prob': 0.0, 'attention_probs_dropout_prob': 0.0,
        'max_position_embeddings': 2048, 'rope_theta': 1000.0,
    },
    always={'position_embedding_type': 'rotary', 'attention_bias': False, 'mlp_bias': False},
    must_be=dict.fromkeys(
        """causal mlp_fc1_bias mlp_fc2_bias num_experts parallel_block prenorm qkv_proj_bias
        rotary_emb_interleaved rotary_emb_scale_base scale_attn_by_inverse_layer_idx
        use_rms_norm""".split(), (False, None)
    )
    | {'activation_function': ('swiglu',), 'rotary_emb_fraction': (1,)}
    | {'scale_attn_weights': (True,)},
    ignored=tuple(
        """dense_seq_output embd_pdrop fused_bias_fc fused_dropout_add_ln head_dim
        max_trained_positions pad_vocab_size_multiple parallel_block_tied_norm
        position_embedding_type reorder_and_upcast_attn summary_first_dropout
        summary_proj_to_labels use_flash_attn
        use_xentropy""".split()
    ),
)  # fmt: skip
_EURO = Family(
    name='EuroBert', norm_first=True, gated=True, rms_norm=True, embedding_dropout=False,
    pooler_act='gelu', pooler_is_of_classifier=True, lm_plain=True, pruned_key=_OURS,
    reads=('rope_theta', 'num_key_value_heads', 'attention_bias', 'mlp_bias', 'classifier_pooling'),
    keys={'layer_norm_eps': 'rms_norm_eps', 'attention_probs_dropout_prob': 'attention_dropout'},
    values={'classifier_pooling': {'late': 'late', 'mean': 'mean', 'bos': 'cls'}},
    defaults={
        'hidden_act': 'silu', 'attention_probs_dropout_prob': 0.0, 'layer_norm_eps': 1e-5,
        'max_position_embeddings': 8192, 'pad_token_id': 128001, 'rope_theta': 10_000.0,
        'attention_bias': False, 'mlp_bias': False, 'classifier_pooling': 'late',
    },
    always={
        'type_vocab_size': 0, 'hidden_dropout_prob': 0.0, 'classifier_dropout': 0.0,
        'position_embedding_type': 'rotary', 'emb_layer_norm_before': False, 'norm_bias': False,
    },
    # In the code of its authors, `clf_pooling` is what `classifier_pooling` is today.
    must_be={'clf_pooling': ('late',), 'hidden_dropout': (0.0,), 'pretraining_tp': (1,)},
    ignored=tuple(
        'bos_token eos_token head_dim mask_token pad_token position_embedding_type'.split()
    ),
)  # fmt: skip
_ROFORMER = dataclasses.replace(
    _ROBERTA, name='RoFormer', positions_after_padding=False, sinusoidal=True, pooler_act=None,
    lm_act=None, reads=('embedding_size', 'rotary_value', 'rotary_rounding'),
    defaults={'max_position_embeddings': 1536, 'rotary_value': False},
    always={'classifier_dropout': None, 'position_embedding_type': 'rotary', 'rope_theta': 1e4},
    ignored=('position_embedding_type',),
)  # fmt: skip
_JINA = 'jinaai/jina-bert-implementation'
FAMILIES: Mapping[str, Family] = {
    'bert': Family(name='Bert'),
    'roberta': _ROBERTA,
    'xlm-roberta': dataclasses.replace(_ROBERTA, name='XLMRoberta'),
    'camembert': dataclasses.replace(_ROBERTA, name='Camembert'),
    'distilbert': Family(
        name='DistilBert',
        pooler_act='relu',
        pooler_is_of_classifier=True,
        dropout_after_attention=False,
        keys={
            'hidden_size': 'dim',
            'num_hidden_layers': 'n_layers',
            'num_attention_heads': 'n_heads',
            'intermediate_size': 'hidden_dim',
            'hidden_act': 'activation',
            'hidden_dropout_prob': 'dropout',
            'attention_probs_dropout_prob': 'attention_dropout',
            'classifier_dropout': 'seq_classif_dropout',
        },
        defaults={'classifier_dropout': 0.2},
        always={'type_vocab_size': 0, 'layer_norm_eps': 1e-12},
    ),
    'electra': dataclasses.replace(
        _ROBERTA,
        name='Electra',
        positions_after_padding=False,
        pooler_act='gelu',
        reads=('embedding_size',),
        defaults={'embedding_size': 128},
    ),
    'albert': Family(
        name='Albert',
        projects_always=True,
        dropout_after_feed_forward=False,
        reads=('embedding_size', 'num_hidden_groups'),
        keys={'classifier_dropout': 'classifier_dropout_prob'},
        defaults={
            'embedding_size': 128,
            'num_hidden_groups': 1,
            'hidden_act': 'gelu_new',
            'hidden_dropout_prob': 0.0,
            'attention_probs_dropout_prob': 0.0,
            'classifier_dropout': 0.1,
        },
        must_be={'inner_group_num': (1,)},
        ignored=('down_scale_factor', 'gap_size', 'net_structure_type', 'num_memory_blocks'),
    ),
    'mpnet': dataclasses.replace(
        _ROBERTA,
        name='MPNet',
        relative_buckets=32,
        # Release 4 left the bias of the scores as it was, which then did not fit the heads.
        pruned_key=_OURS,
        # Its classifiers drop what all layers drop.
        always={'type_vocab_size': 0, 'classifier_dropout': None},
        # Whatever stands there, `transformers` counts positions on from 1.
        must_be={'relative_attention_num_buckets': (32,), 'pad_token_id': (1, None)},
    ),
    'deberta-v2': Family(
        name='DebertaV2',
        projects_first=True,
        zero_padding=True,
        pooler_act='gelu',
        pooler_is_of_classifier=True,
        pruned_key=_OURS,
        reads=_OF_DISTANCES,
        keys={'classifier_dropout': 'cls_dropout'},
        defaults={'type_vocab_size': 0, 'layer_norm_eps': 1e-7},
        must_be={'pooler_hidden_act': ('gelu',), 'pooler_dropout': (0,)},
        ignored=('legacy',),
    ),
    'esm': dataclasses.replace(
        _ROBERTA,
        name='Esm',
        norm_first=True,
        zero_padding=True,
        embedding_dropout=False,
        eos_token_id=2,
        reads=(
            'position_embedding_type',
            'rope_theta',
            'emb_layer_norm_before',
            'token_dropout',
            'mask_token_id',
        ),
        # To `transformers`, ALiBi is no positions at all.
        values={
            'position_embedding_type': {'absolute': 'absolute', 'rotary': 'rotary'},
            'emb_layer_norm_before': _SWITCH,
            'token_dropout': _SWITCH,
        },
        defaults={
            'pad_token_id': 1,
            'max_position_embeddings': 1026,
            'rope_theta': 10_000.0,
            'emb_layer_norm_before': False,
            'token_dropout': False,
        },
        always={'type_vocab_size': 0, 'classifier_dropout': None},
        must_be={
            'hidden_act': ('gelu',),
            'is_folding_model': (False, None),
            'esmfold_config': (None,),
        },
        ignored=('vocab_list',),
    ),
    'modernbert': Family(
        name='ModernBert',
        norm_first=True,
        first_layer_unnormed=True,
        pruned_key=_OURS,
        gated=True,
        pooler_act='gelu',
        pooler_norm=True,
        pooler_is_of_classifier=True,
        pools_tokens=True,
        reads=(
            'rope_theta',
            'local_rope_theta',
            'layer_types',
            'local_attention',
            'attention_bias',
            'mlp_bias',
            'norm_bias',
            'classifier_bias',
            'classifier_pooling',
        ),
        keys={
            'hidden_act': 'hidden_activation',
            'layer_norm_eps': 'norm_eps',
            'attention_probs_dropout_prob': 'attention_dropout',
            'rope_theta': 'global_rope_theta',
        },
        values={'classifier_pooling': {'cls': 'cls', 'mean': 'mean'}},
        defaults={
            'max_position_embeddings': 8192,
            'layer_norm_eps': 1e-5,
            'attention_probs_dropout_prob': 0.0,
            'classifier_dropout': 0.0,
            'pad_token_id': 50283,
            'rope_theta': 160_000.0,
            'local_rope_theta': 10_000.0,
            'local_attention': 128,
            'attention_bias': False,
            'mlp_bias': False,
            'norm_bias': False,
            'classifier_bias': False,
        },
        always={
            'type_vocab_size': 0,
            'hidden_dropout_prob': 0.0,
            'position_embedding_type': 'rotary',
        },
        must_be={
            'attention_dropout': (0.0,),
            'embedding_dropout': (0.0,),
            'mlp_dropout': (0.0,),
            'classifier_activation': ('gelu',),
        },
        ignored=(
            'decoder_bias',
            'deterministic_flash_attn',
            'initializer_cutoff_factor',
            'layer_norm_eps',
            'position_embedding_type',
            'reference_compile',
            'repad_logits_with_grad',
            'sparse_pred_ignore_index',
            'sparse_prediction',
        ),
    ),
    'nomic_bert': _NOMIC,
    'eurobert': _EURO,
    'roformer': _ROFORMER,
    'data2vec-text': dataclasses.replace(_ROBERTA, name='Data2VecText'),
    # Its texts are of task 0, as `transformers` takes them if nothing is said.
    'ernie': Family(
        name='Ernie',
        reads=('use_task_id', 'task_type_vocab_size'),
        defaults={'use_task_id': False, 'task_type_vocab_size': 3},
        # Keys of the library that they were made with, which stayed in some files.
        ignored=('embedding_size', 'sent_type_vocab_size'),
    ),
    # jina-embeddings-v2 and jina-reranker-v1, by the repository jinaai/jina-bert-implementation.
    'jina_bert': Family(
        name='JinaBert',
        gated=True,
        bias_of_gates=False,
        dropout_in_feed_forward=True,
        dropout_after_feed_forward=False,
        pruned_key=_OURS,
        always={'position_embedding_type': 'alibi'},
        must_be={'hidden_act': ('gelu',)},
        ignored=('position_embedding_type', 'feed_forward_type', 'emb_pooler'),
        known_by={
            'model_type': 'bert',
            'position_embedding_type': 'alibi',
            'feed_forward_type': 'geglu',
        },
        code={'AutoConfig': f'{_JINA}--configuration_bert.JinaBertConfig'}
        | {
            f'AutoModel{ending}': f'{_JINA}--modeling_bert.JinaBert{ending or "Model"}'
            for ending in ('', 'ForMaskedLM', 'ForSequenceClassification')
        },
    ),
    # jina-embeddings-v3, which `transformers` has, and its repository under another name.
    'jina_embeddings_v3': dataclasses.replace(
        _ROBERTA,
        name='JinaEmbeddingsV3',
        pruned_key=_OURS,
        reads=('rope_theta',),
        former={'rotary_emb_base': 'rope_theta'},
        defaults={
            'max_position_embeddings': 8194,
            'type_vocab_size': 1,
            'layer_norm_eps': 1e-5,
            'pad_token_id': 1,
            'rope_theta': 20_000.0,
        },
        always={'position_embedding_type': 'rotary'},
        must_be={'use_reg_tokens': (False, None), 'truncate_dim': (None,)},
        ignored=(
            *'position_embedding_type emb_pooler load_trained_adapters lora_adaptations'.split(),
            *'lora_alpha lora_dropout_p lora_main_params_trainable lora_rank'.split(),
            *'matryoshka_dimensions task_instructions use_flash_attn'.split(),
        ),
        known_by={'model_type': 'xlm-roberta', 'position_embedding_type': 'rotary'},
    ),
}
