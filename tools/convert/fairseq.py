"""Turn a RoBERTa of fairseq into a folder that we, and `transformers`, can read.

Its checkpoints are pickles with settings and the state of an optimiser beside the weights. PyTorch
reads them in the way that runs no code of the file (`weights_only`), and must be installed.

    python -m tools.convert.fairseq checkpoint.pt dict.txt FOLDER
"""

import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_secrets_jax.files import read_text
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import write_model
from tools.convert.vocabulary import letter_tokenizer

# The tokens that fairseq puts before a dictionary, and the one that masked LMs have behind it.
_FIRST, _LAST = ('<s>', '<pad>', '</s>', '<unk>'), '<mask>'
_MODULES = {
    r'embed_tokens': 'embeddings.word_embeddings',
    r'embed_positions': 'embeddings.position_embeddings',
    r'emb_layer_norm': 'embeddings.LayerNorm',
    r'layers\.(\d+)\.self_attn\.q_proj': r'encoder.layer.\1.attention.self.query',
    r'layers\.(\d+)\.self_attn\.k_proj': r'encoder.layer.\1.attention.self.key',
    r'layers\.(\d+)\.self_attn\.v_proj': r'encoder.layer.\1.attention.self.value',
    r'layers\.(\d+)\.self_attn\.out_proj': r'encoder.layer.\1.attention.output.dense',
    r'layers\.(\d+)\.self_attn_layer_norm': r'encoder.layer.\1.attention.output.LayerNorm',
    r'layers\.(\d+)\.fc1': r'encoder.layer.\1.intermediate.dense',
    r'layers\.(\d+)\.fc2': r'encoder.layer.\1.output.dense',
    r'layers\.(\d+)\.final_layer_norm': r'encoder.layer.\1.output.LayerNorm',
}
# The encoder has other names in other releases.
_ENCODER = re.compile(r'^(?:decoder|encoder)\.(?:sentence_encoder\.)?')
_HEAD = 'lm_head.'
_NEEDED = ('encoder_layers', 'encoder_attention_heads', 'encoder_ffn_embed_dim', 'activation_fn')


def convert_fairseq(
    checkpoint: str | pathlib.Path, dictionary: str | pathlib.Path, directory: str | pathlib.Path
) -> None:
    """Write a RoBERTa of fairseq, a masked LM over letters, as a folder in Hugging Face's layout.

    Args:
      checkpoint: The file of the checkpoint (`.pt`).
      dictionary: The file with a token and its frequency on each line (`dict.txt`).
      directory: The folder to write; made if it is missing.

    Raises:
      ImportError: PyTorch is not installed.
      ValueError: The checkpoint is none of RoBERTa, or asks for anything but plain values.
    """
    settings, weights = _read(pathlib.Path(checkpoint))
    tensors, unknown = {}, []
    for name, tensor in weights.items():
        short = _ENCODER.sub('', name)
        module, _, leaf = short.rpartition('.')
        if short.startswith(_HEAD):
            # The weights of the last layer are `lm_head.weight`.
            tensors[short.replace('lm_head.weight', 'lm_head.decoder.weight')] = tensor
            continue
        for theirs, ours in _MODULES.items():
            if re.fullmatch(theirs, module):
                tensors[f'roberta.{re.sub(theirs, ours, module)}.{leaf}'] = tensor
                break
        else:
            if short != 'version':
                unknown.append(name)
    lacking = [name for name in _NEEDED if name not in settings]
    if unknown or lacking or 'roberta.embeddings.word_embeddings.weight' not in tensors:
        raise ValueError(
            f'{checkpoint} is no RoBERTa of fairseq: it has {", ".join(unknown[:3]) or "nothing"} '
            f'besides, and lacks {", ".join(lacking) or "nothing"} among its settings.'
        )
    tokens = [line.rsplit(' ', 1)[0] for line in read_text(pathlib.Path(dictionary)).splitlines()]
    vocabulary = [*_FIRST, *tokens]
    words = tensors['roberta.embeddings.word_embeddings.weight']
    # Dictionaries are filled up to a multiple of 8 by some programs.
    vocabulary += [f'<madeup{number}>' for number in range(len(words) - len(vocabulary) - 1)]
    vocabulary.append(_LAST)
    if len(vocabulary) != len(words):
        raise ValueError(
            f'{dictionary} has {len(tokens)} tokens, and {checkpoint} embeddings of {len(words)}: '
            'is it of another model?'
        )
    positions = tensors['roberta.embeddings.position_embeddings.weight']
    config = BertConfig(
        model_type='roberta',
        vocab_size=len(words),
        hidden_size=words.shape[1],
        num_hidden_layers=settings['encoder_layers'],
        num_attention_heads=settings['encoder_attention_heads'],
        intermediate_size=settings['encoder_ffn_embed_dim'],
        hidden_act=settings['activation_fn'],
        hidden_dropout_prob=settings.get('dropout', 0.1),
        attention_probs_dropout_prob=settings.get('attention_dropout', 0.1),
        max_position_embeddings=len(positions),
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=_FIRST.index('<pad>'),
        add_pooler=False,
        head='masked_lm',
    )
    # A model of one segment has nothing to add for it.
    tensors['roberta.embeddings.token_type_embeddings.weight'] = np.zeros((1, words.shape[1]))
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    letter_tokenizer(vocabulary).save_pretrained(directory)
    arrays = {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in tensors.items()}
    write_model(directory, config, arrays)


def _read(checkpoint: pathlib.Path) -> tuple[dict[str, Any], Mapping[str, np.ndarray]]:
    import argparse
    import pickle

    try:
        import torch
    except ImportError as error:
        raise ImportError('fairseq checkpoints need PyTorch: pip install torch.') from error

    # Settings are a `Namespace`, a plain class of Python's own that holds values.
    with torch.serialization.safe_globals([argparse.Namespace]):
        try:
            content = torch.load(checkpoint, map_location='cpu', weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            reason = ' '.join(str(error).split())[:300]
            raise ValueError(f'{checkpoint} was not read: {reason}') from error
    if not isinstance(content, dict) or not {'model', 'args'} <= content.keys():
        raise ValueError(f'{checkpoint} has no "model" and "args", as a checkpoint of fairseq has.')
    weights = {
        name: tensor.float().numpy()
        for name, tensor in content['model'].items()
        if isinstance(tensor, torch.Tensor)
    }
    return dict(vars(content['args'])), weights


if __name__ == '__main__':
    if len(sys.argv) != 4:
        raise SystemExit('Give a checkpoint (.pt), its dict.txt, and the folder to write.')
    convert_fairseq(*sys.argv[1:])
