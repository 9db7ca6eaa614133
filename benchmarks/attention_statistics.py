"""Statistics of all heads over a corpus: PyTorch `transformers` against `bs.collect`.

They are those of the catalogue that need no annotations and one model. PyTorch runs eager attention
(the only one that returns maps), once as a careful user would (the same length-sorted batches as
ours, statistics reduced per batch) and once as the authors' notebook does (one example at a time).
"""

import numpy as np

import bert_secrets_jax as bs
from benchmarks.cases import Case, to_torch
from benchmarks.formulas import forward_operations
from benchmarks.timing import Question, Way

# Which of two nearly equal ones is the greatest depends on rounding.
_BY_RANK = ('greatest at previous token', 'greatest at next token')
STATISTICS = [
    name
    for name, described in bs.catalogue.CATALOGUE.items()
    if not (described.annotated or described.pairwise or name in _BY_RANK)
]


def pytorch_statistics(model, inputs, marks) -> dict:
    """Return each statistic that is written here in PyTorch, [L, B, N]; NaN is no value."""
    import torch

    with torch.no_grad():
        maps = torch.stack(model(**inputs, output_attentions=True).attentions).float()
    real = inputs['attention_mask'][None, :, None, :].to(maps.dtype)
    length = real.sum(-1)
    received = (maps * real[..., None]).sum(3) / length[..., None]
    cls, sep = (marks[name][None, :, None, :] for name in ('cls', 'sep'))
    from_cls = maps[..., 0, :]
    stops = marks['period_comma'][None, :, None, :]
    even = real / length[..., None]
    smoothed = 0.9999 * maps + 0.0001 * even[:, :, :, None, :]
    no_stops = ~stops.any(-1)
    to_sep = (maps * sep[..., None, :]).sum(-1)
    found = {
        '[CLS]': (received * cls).amax(-1),
        '[SEP]': (received * sep).amax(-1),
        '[CLS] and all [SEP]': (received * (cls | sep)).sum(-1),
        'entropy (nats)': (torch.special.entr(maps).sum(-1) * real).sum(-1) / length,
        'all [SEP]': (received * sep).sum(-1),
        'period or comma': (received * stops).sum(-1).masked_fill(no_stops, torch.nan),
        '[SEP] to [SEP]': (to_sep * sep).sum(-1) / sep.sum(-1),
        'other tokens to [SEP]': (to_sep * (real - sep.to(real.dtype))).sum(-1)
        / (length - sep.sum(-1)),
        'entropy of [CLS] (nats)': torch.special.entr(from_cls).sum(-1),
        'entropy, smoothed (nats)': (torch.special.entr(smoothed).sum(-1) * real).sum(-1) / length,
        'entropy of [CLS], smoothed (nats)': torch.special.entr(smoothed[..., 0, :]).sum(-1),
        'entropy of even attention': length.log().expand(from_cls.shape[:3]),
        'from [CLS] to [CLS]': (from_cls * cls).amax(-1),
        'from [CLS] to [SEP]': (from_cls * sep).amax(-1),
    }
    others = real * ~sep
    sure = maps.masked_fill(sep[..., None, :], 0).amax(-1)
    found['confidence'] = (sure * others).sum(-1) / others.sum(-1)
    for name, offset in (('self', 0), ('previous token', -1), ('next token', 1)):
        diagonal = maps.diagonal(offset, dim1=3, dim2=4)
        rows = real[..., abs(min(offset, 0)) :][..., : diagonal.shape[-1]]
        found[name] = (diagonal * rows).sum(-1) / length
    return found


def in_pytorch(model, batches: list[bs.Batch]) -> np.ndarray:
    """Return the means [S, L, N] of all S statistics over all batches without empty rows."""
    import torch

    total, count = 0, 0
    for batch in batches:
        marks = {
            name: torch.from_numpy(mark).to(model.device) for name, mark in batch.marks.items()
        }
        found = pytorch_statistics(model, to_torch(batch, model), marks)
        # A new one of the catalogue has to be written above.
        values = torch.stack([found[name] for name in STATISTICS])
        total = total + values.nansum(2).cpu().numpy()
        count = count + (~values.isnan()).sum(2).cpu().numpy()
    return total / count


def questions(case: Case) -> list[Question]:
    """Return the question of all statistics."""

    def ours():
        pretrained, batches = case.ours, case.batches

        def run():
            tables = bs.collect(pretrained, batches, STATISTICS)
            return np.stack([tables[name].mean for name in STATISTICS])

        return run

    def theirs(batches):
        model = case.theirs()
        return lambda: in_pytorch(model, batches)

    def alone():
        tokenizer, length = case.ours.tokenizer, case.settings.length
        lengths = range(1, length)
        return theirs(
            [bs.encode(tokenizer, [each], buckets=lengths, max_length=length)[0]
             for each in case.examples]
        )  # fmt: skip

    def agree(found):
        return case.agreed(found, found.pop('ours'), 1e-5)

    config = case.ours.config
    return [
        Question(
            name=f'{len(STATISTICS)} statistics of all heads',
            unit='examples',
            amount=len(case.examples),
            about=case.about,
            agree=agree,
            ways={
                'ours': Way(ours, operations=forward_operations(config, case.batches)),
                'PyTorch, same batches': Way(
                    lambda: theirs(case.filled),
                    operations=forward_operations(config, case.filled),
                    in_pytorch=True,
                    peer=True,
                ),
                'PyTorch, one at a time': Way(alone, in_pytorch=True),
            },
        )
    ]
