"""Compare a folder with `transformers`, and print where the first difference is.

    python -m tools.family_check build/my-encoder

Both read the folder and the same random wordpieces, of several lengths. Compared are embeddings,
then the maps and the output of each layer, then what the head says, on real tokens alone. In the
first line that differs is the mistake, or just before it: all that follows is made from that. The
exit status is 1 with a difference, and 2 if one of the two cannot read the folder.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.model import hub
from bert_secrets_jax.model.config import CLASSES, QUESTIONS


def inputs_of(config: bs.BertConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random wordpieces [B, T], from as many as the model or this takes down to one."""
    rng, most = np.random.default_rng(seed), min(config.max_length, 48)
    lengths = np.array([most, max(most // 3, 1), min(most, 3), 1])[:, None]
    real = np.arange(most) < lengths
    ids = rng.integers(0, config.vocab_size - 1, real.shape)
    ids += ids >= config.pad_token_id
    second = (np.arange(most) >= lengths // 2) & real & (config.type_vocab_size > 1)
    return {
        'input_ids': np.where(real, ids, config.pad_token_id).astype(np.int32),
        'token_type_ids': second.astype(np.int32),
        'attention_mask': real.astype(np.int32),
    }


def theirs(folder: str, config: bs.BertConfig, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return embeddings, maps, states and logits of `transformers`, in the order of computation.

    ValueError says that it has no such models, or lacks weights of this one.
    """
    import torch
    import transformers

    name = f'{config.family.name}{CLASSES[config.head] if config.has_head else "Model"}'
    if config.family.code or not hasattr(transformers, name):
        raise ValueError(f'transformers {transformers.__version__} has no {name}.')
    model, report = getattr(transformers, name).from_pretrained(
        folder, attn_implementation='eager', dtype=torch.float32, output_loading_info=True
    )
    # It has poolers and a head for contacts that are in no file.
    lacks = [key for key in report['missing_keys'] if 'pooler' not in key and 'contact' not in key]
    if lacks:
        raise ValueError(f'{name} finds no {", ".join(sorted(lacks))} in {folder}.')
    given = {key: torch.tensor(array).long() for key, array in inputs.items()}
    if config.type_vocab_size < 2:
        del given['token_type_ids']
    with torch.no_grad():
        output = model.eval()(**given, output_attentions=True, output_hidden_states=True)
    logits = getattr(output, 'logits', None)
    if config.head == QUESTIONS:
        logits = torch.stack([output.start_logits, output.end_logits], dim=-1)
    steps = _steps(output.hidden_states, output.attentions, logits)
    return {step: array.numpy() for step, array in steps}


def ours(model: bs.Pretrained, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the same of the model that we read."""
    output = jax.jit(model.bert.apply)({'params': model.params}, **inputs)
    states, maps = (np.moveaxis(each, 1, 0) for each in (output.hidden_states, output.attentions))
    return {step: np.asarray(array) for step, array in _steps(states, maps, output.logits)}


def _steps(states: Sequence, maps: Sequence, logits: Any) -> Iterator[tuple[str, Any]]:
    yield 'embeddings', states[0]
    for layer, (of_layer, state) in enumerate(zip(maps, states[1:], strict=True), 1):
        yield f'maps of layer {layer}', of_layer
        yield f'output of layer {layer}', state
    if logits is not None:
        yield 'logits', logits


def difference(found: np.ndarray, expected: np.ndarray, mask: np.ndarray) -> float:
    """Return the greatest difference on real tokens, as a share of the greatest number above 1."""
    if found.shape != expected.shape:
        return np.inf
    if found.ndim > 2:
        # Heads of maps stand before queries.
        found, expected = (each.swapaxes(1, each.ndim - 2)[mask > 0] for each in (found, expected))
    greatest = np.abs(found - expected).max() / max(1, np.abs(expected).max())
    return float(np.nan_to_num(greatest, nan=np.inf))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the model that is named, print each step, and return the exit status."""
    parser = argparse.ArgumentParser(prog='family_check', description=__doc__.split('\n')[0])
    parser.add_argument('model', help='a folder, or a name on the hub')
    parser.add_argument('--tolerance', type=float, default=1e-4, help='default: %(default)s')
    given = parser.parse_args(arguments)
    try:
        folder = str(hub.locate(given.model))
        model = bs.from_pretrained(folder)
        inputs = inputs_of(model.config)
        expected = theirs(folder, model.config, inputs)
    except (OSError, ValueError) as error:
        print(error)
        return 2
    found, first = ours(model, inputs), None
    for step, array in expected.items():
        apart = difference(found[step], array, inputs['attention_mask'])
        differs = not apart <= given.tolerance
        first = first or (step if differs else None)
        print(f'{"DIFFERS" if differs else "equal":8} {apart:8.1e}  {step}')
    print(f'The first difference: {first}.' if first else f'{model.config.summary}: all is equal.')
    return int(first is not None)


if __name__ == '__main__':
    raise SystemExit(main())
