"""Names that settings have for kinds of heads, of layers, and of parts of scores."""

# The kinds of heads on the encoder: for the whole input, each token, an answer, or [MASK].
SEQUENCES, TOKENS = 'sequence_classification', 'token_classification'
QUESTIONS, MASKED_LM = 'question_answering', 'masked_lm'
HEADS = (SEQUENCES, TOKENS, QUESTIONS, MASKED_LM)
# The kinds of layers that ModernBERT has, as its config.json spells them.
GLOBAL, LOCAL = 'full_attention', 'sliding_attention'
# The summands of scores in DeBERTa, of content and position; the query comes first.
SCORE_PARTS = ('c2c', 'c2p', 'p2c')
