"""Which other input lends a disabled head its output (baseline 'resample'), in NumPy alone.

In resample ablation (Chan et al. 2022, causal scrubbing) a head gives an example its output on
another one, the donor. Donors are drawn over all examples at once, and tokens are paired by
position in the text. Neither depends on batches, padding or devices.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from bert_secrets_jax.data.encoding import Batch


def draw_donors(lengths: Int[np.ndarray, ' E'], *, seed: int) -> Int[np.ndarray, ' E']:
    """Draw the donor of each example: another one, of the closest length that there is.

    Among examples of one length, each lends its output once, and each other one is equally likely.
    An example that is alone with its length has any donor of the one or two nearest lengths.
    """
    if len(lengths) < 2:
        raise ValueError(
            f"The baseline 'resample' takes the output of a head on another example, and there are "
            f'{len(lengths)} in all: give at least two.'
        )
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(lengths))
    distinct = np.unique(lengths)
    groups = [shuffled[lengths[shuffled] == length] for length in distinct]
    donors = np.empty(len(lengths), int)
    for group, length in zip(groups, distinct, strict=True):
        if len(group) > 1:
            donors[group] = np.roll(group, 1)
            continue
        gaps = np.abs(distinct - length)
        nearest = gaps == gaps[gaps > 0].min()
        near = np.concatenate([groups[index] for index in np.flatnonzero(nearest)])
        donors[group] = rng.choice(near)
    return donors


def donor_tokens(
    lengths: Int[np.ndarray, ' B'], donor_lengths: Int[np.ndarray, ' B'], width: int
) -> Int[np.ndarray, 'B T']:
    """Return the position in the donor from which each token takes the output of a head.

    [CLS] and the last [SEP] take those of the donor's. The other tokens take those of the donor's
    other tokens in order, from the first again where the donor is shorter; a donor without any
    lends its last [SEP]. Padding takes from position 0. Lengths are 0 in a filler row.
    """
    places = np.arange(width)[None]
    last, donor_last = lengths[:, None] - 1, donor_lengths[:, None] - 1
    inner = 1 + (places - 1) % np.maximum(donor_last - 1, 1)
    taken = np.where(places == 0, 0, np.where(places == last, donor_last, inner))
    return np.where(places <= last, np.maximum(taken, 0), 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Donors:
    """The batch and row of each example by its number, and the number of its donor, or -1."""

    rows: Sequence[tuple[int, int]]
    batches: Sequence[Batch]
    donors: Int[np.ndarray, ' E']

    @classmethod
    def drawn(cls, batches: Sequence[Batch], *, seed: int) -> 'Donors':
        """Draw donors among the examples of all batches, which have each example once."""
        places = {
            int(example): (number, row)
            for number, batch in enumerate(batches)
            for row, example in enumerate(np.asarray(batch.example))
            if example >= 0
        }
        # In the order of the examples, so that the order of the batches is no matter.
        examples = np.array(sorted(places), int)
        rows = [places.get(example, (-1, -1)) for example in range(max(places, default=-1) + 1)]
        lengths = np.array([_tokens(batches, rows[example]) for example in examples], int)
        donors = np.full(len(rows), -1)
        donors[examples] = examples[draw_donors(lengths, seed=seed)]
        return cls(rows, batches, donors)

    def of(self, batch: Batch, *, padding: int) -> tuple[Batch, Int[np.ndarray, 'B T']]:
        """Return the donors of a batch, row by row, and the result of `donor_tokens` for them.

        The donors have no marks, and are padded to a length that occurs among all batches.
        """
        examples = np.asarray(batch.example)
        donors = np.where(examples >= 0, self.donors[examples], -1)
        lengths = np.array(
            [0 if donor < 0 else _tokens(self.batches, self.rows[donor]) for donor in donors], int
        )
        widths = np.unique([np.shape(each.input_ids)[1] for each in self.batches])
        width = int(widths[widths >= lengths.max()].min())
        input_ids = np.full((len(donors), width), padding, np.int32)
        token_type_ids = np.zeros_like(input_ids)
        for row, (donor, length) in enumerate(zip(donors, lengths, strict=True)):
            if donor >= 0:
                number, place = self.rows[donor]
                lender = self.batches[number]
                input_ids[row, :length] = np.asarray(lender.input_ids[place])[:length]
                token_type_ids[row, :length] = np.asarray(lender.token_type_ids[place])[:length]
        real = (np.arange(width) < lengths[:, None]).astype(np.int32)
        lent = Batch(input_ids, token_type_ids, real, marks={}, example=donors.astype(np.int32))
        own = np.asarray(batch.attention_mask).sum(axis=1) * (examples >= 0)
        return lent, donor_tokens(own, lengths, np.shape(batch.input_ids)[1]).astype(np.int32)


def _tokens(batches: Sequence[Batch], place: tuple[int, int]) -> int:
    number, row = place
    return int(np.asarray(batches[number].attention_mask[row]).sum())
