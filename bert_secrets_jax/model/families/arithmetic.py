"""The arithmetic of a family of encoders: where it differs from BERT's."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How the models of a family compute unlike BERT; the defaults are BERT's.

    Attributes:
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
    """

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
