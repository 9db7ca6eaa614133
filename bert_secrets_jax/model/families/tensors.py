"""How the checkpoints of a family name their tensors."""

import dataclasses
import re

import numpy as np

from bert_secrets_jax.model.families.arithmetic import Arithmetic
from bert_secrets_jax.model.names import MASKED_LM, QUESTIONS, SEQUENCES, TOKENS

Names = dict[str, str]
Parts = dict[str, tuple[str, ...]]
Arrays = dict[str, np.ndarray]
# As Llama has them, and many models after it.
LLAMA = {
    f'layers/attention/{name}': f'layers.{{}}.self_attn.{name[0]}_proj'
    for name in ('query', 'key', 'value', 'output')
} | {'layers/intermediate': 'layers.{}.mlp.gate_and_up', 'layers/output': 'layers.{}.mlp.down_proj'}
# As old releases of several libraries have them, and LoRA, without which the weight is itself.
_OLDER = {
    r'LayerNorm\.gamma$': 'LayerNorm.weight',
    r'LayerNorm\.beta$': 'LayerNorm.bias',
    r'\.parametrizations\.weight\.original': '.weight',
}
GATE_AND_UP = {'mlp.gate_and_up': ('mlp.gate_proj', 'mlp.up_proj')}


def lm_names(dense: str, norm: str, decoder: str) -> dict[str, str]:
    """Return the names of a masked-LM head of three modules, for `Tensors.lm`."""
    return {'lm/dense': dense, 'lm/norm': norm, 'lm/decoder': decoder, 'lm': decoder}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensors(Arithmetic):
    """How the checkpoints of a family name the tensors of what it computes.

    Attributes:
      prefix: Prefix of every tensor except the head's, if the checkpoint has a head.
      encoder: Our name of each module and theirs, in which '{}' stands for the number of the layer.
      pooler: The same for the layer under the classifier, and its norm.
      pooler_of_encoder: Whether that layer has the prefix, as a part of the encoder.
      classifier, answers: The last layer of the heads for the whole input and for answers.
      lm: Our name of each module of the head of a masked LM, and theirs.
      other_heads: Prefixes of heads that are not implemented, which are left out knowingly.
      second_bias: The second name of the bias of a masked LM; '' if it has one name.
      fused: A module of theirs that holds several of ours one after the other, and those.
      joined: A module of ours that holds several of theirs one after the other, and those.
      former_names: Patterns of names in older files, and what stands there today.
      formerly_fused: A module of older files that holds several of theirs, and those.
      sinusoids: The tensor of cosines and sines of rotary positions; '' without one.
      saves_frequencies: Whether the frequencies of rotary positions are among the tensors.
      not_legacy: How names begin if config.json says `legacy: false`, and how they do otherwise.
    """

    prefix: str
    encoder: Names
    pooler: Names
    pooler_of_encoder: bool = False
    classifier: str = 'classifier'
    answers: str = 'qa_outputs'
    lm: Names
    other_heads: tuple[str, ...] = ()
    second_bias: str = ''
    fused: Parts = dataclasses.field(default_factory=dict)
    joined: Parts = dataclasses.field(default_factory=dict)
    former_names: Names = dataclasses.field(default_factory=dict)
    formerly_fused: Parts = dataclasses.field(default_factory=dict)
    saves_frequencies: bool = False
    sinusoids: str = ''
    not_legacy: Names = dataclasses.field(default_factory=dict)

    def head(self, head: str) -> dict[str, str]:
        """Return our name of each module of a head and theirs; none of what has no weights."""
        own = {} if self.pooler_of_encoder else self.pooler
        of_tokens = own if self.pools_tokens else {}
        return {
            SEQUENCES: {**own, 'classifier': self.classifier},
            TOKENS: {**of_tokens, 'classifier': 'classifier'},
            QUESTIONS: {**of_tokens, 'classifier': self.answers},
            MASKED_LM: {**of_tokens, **self.lm},
        }.get(head, {})

    def modules(self, head: str) -> dict[str, str]:
        """Return the same of the encoder and of one head."""
        own = self.pooler if self.pooler_of_encoder else {}
        return {**self.encoder, **own, **self.head(head)}

    def is_of(self, head: str, name: str) -> bool:
        """Return whether a tensor, named without the prefix, is of a head."""
        return name.startswith(tuple(f'{module}.' for module in self.head(head).values())) or (
            head == MASKED_LM and name == self.second_bias
        )

    def part(self, tensors: Arrays) -> Arrays:
        """Make our modules of theirs; what does not fit stays, and is then unexpected."""
        return _join(_cut(tensors, {**self.fused, **self.formerly_fused}), self.joined)

    def fuse(self, tensors: Arrays) -> Arrays:
        """Make their modules of ours."""
        return _join(_cut(tensors, self.joined), self.fused)

    def renamed(self, name: str, *, legacy: bool) -> str:
        """Return the name of today of a tensor, without prefixes; `legacy` as in `not_legacy`."""
        # `module.` is what PyTorch's data parallelism leaves.
        name = name.removeprefix('module.').removeprefix(self.prefix)
        for old, new in {**self.former_names, **_OLDER}.items():
            name = re.sub(old, new, name)
        for start, usual in {} if legacy else self.not_legacy.items():
            name = usual + name.removeprefix(start) if name.startswith(start) else name
        return name


def _cut(tensors: Arrays, whole: Parts) -> Arrays:
    """Cut modules into their equal parts, where there are such modules that can be cut."""
    for module, parts in whole.items():
        for name in [name for name in tensors if f'.{module}.' in name]:
            if tensors[name].ndim and len(tensors[name]) % len(parts) == 0:
                cut = np.split(tensors.pop(name), len(parts))
                tensors |= {
                    name.replace(module, part): tensor
                    for part, tensor in zip(parts, cut, strict=True)
                }
    return tensors


def _join(tensors: Arrays, whole: Parts) -> Arrays:
    """Join parts to modules, where all of a module are there and have one shape."""
    for module, parts in whole.items():
        for name in [name for name in tensors if f'.{parts[0]}.' in name]:
            names = [name.replace(parts[0], part) for part in parts]
            if len({tensors[each].shape if each in tensors else None for each in names}) == 1:
                joined = np.concatenate([np.atleast_1d(tensors.pop(each)) for each in names])
                tensors[name.replace(parts[0], module)] = joined
    return tensors
