"""How a model knows where tokens stand: one file for each mechanism.

Each file says what its mechanism adds to embeddings and to scores, and its functions do that:
`absolute` (BERT), `rotary` (RoFormer, ESM, ModernBERT and others), `bias` (MPNet, ALiBi) and
`disentangled` (DeBERTa). The legend of shapes is in `attention.py`.
"""
