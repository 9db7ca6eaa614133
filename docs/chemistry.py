"""The behaviour of heads in two chemistry BERTs: the numbers of docs/results.md, and figures.

    make models && .venv/bin/pip install rdkit
    .venv/bin/python -m docs.chemistry --reactions=golden_subset.smi --workdir=results/chemistry

Reactions are lines of SMILES with atom numbers, [CH3:1][OH:2]>>..., behind a tab or alone.
"""

import importlib.util
import pathlib
import re

import numpy as np
from absl import app, flags
from rdkit import Chem

import bert_secrets_jax as bs
from tools.convert.vocabulary import regex_tokenizer

_REACTIONS = flags.DEFINE_string('reactions', None, 'Reactions with atom numbers.', required=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'The folder of the results.', required=True)

TOKEN = r'\[[^\]]+]|Br|Cl|>>|%[0-9]{2}|[A-Za-z]|[0-9]|[^A-Za-z0-9]'
RELATION = 'product-reactant'


def model_of(package, name, vocabulary=None, **changes):
    site = pathlib.Path(importlib.util.find_spec(package).origin).parent
    folder = site / 'models' / 'transformers'
    words = folder / (vocabulary or name) / 'vocab.txt'
    return bs.from_pretrained(folder / name, tokenizer=regex_tokenizer(words, TOKEN), **changes)


def side(mapped):
    """Return the canonical SMILES of one side, and start, end, element and number of each atom."""
    molecules = Chem.MolFromSmiles(mapped)
    numbers = [atom.GetAtomMapNum() for atom in molecules.GetAtoms()]
    for atom in molecules.GetAtoms():
        atom.SetAtomMapNum(0)
    text = Chem.MolToSmiles(molecules)
    order = molecules.GetPropsAsDict(True, True)['_smilesAtomOutputOrder']
    found = [each for each in re.finditer(TOKEN, text) if re.match(r'\[|[A-Za-z]', each[0])]
    return text, [
        (token.start(), token.end(), molecules.GetAtomWithIdx(atom).GetSymbol(), numbers[atom])
        for token, atom in zip(found, order, strict=True)
    ]


def read(path):
    """Return reactions as texts, and their annotations: links of atoms, elements as classes."""
    texts, links, elements = [], [], []
    for line in pathlib.Path(path).read_text().splitlines():
        if not line or line.startswith('#'):
            continue
        (left, before), (right, after) = map(side, line.split('\t')[-1].split('>>'))
        shift = len(left) + len('>>')
        after = [(start + shift, end + shift, *rest) for start, end, *rest in after]
        at = {number: bs.Span(start, end) for start, end, _, number in before if number}
        texts.append(f'{left}>>{right}')
        links.append(
            tuple(
                bs.Link((bs.Span(start, end),), (at[number],))
                for start, end, _, number in after
                if number in at
            )
        )
        elements.append({})
        for start, end, element, _ in (*before, *after):
            elements[-1].setdefault(element, []).append(bs.Span(start, end))
    names = sorted({name for each in elements for name in each})
    return texts, [
        bs.Annotation({}, {RELATION: these}, {name: tuple(of.get(name, ())) for name in names})
        for these, of in zip(links, elements, strict=True)
    ]


def found_atoms(model, texts, annotations):
    """Return the share of product atoms [L, N] that look most at the atom they come from.

    Among all atoms of the reactants, as rxnmapper looks for them.
    """
    right, count = 0, 0
    for text, annotation in zip(texts, annotations, strict=True):
        (batch,) = bs.encode(model.tokenizer, [text], max_length=512)
        output = model.bert.apply({'params': model.params}, **batch.inputs)
        encoded = bs.tokenize(model.tokenizer, [text], max_length=512)
        token = {start: place for place, (start, _) in enumerate(encoded.offsets[0]) if place}
        spans = [span.start for spans in annotation.classes.values() for span in spans]
        atoms = np.array([token[start] for start in spans if start < text.index('>>')])
        for link in annotation.relations[RELATION]:
            source, target = (token[end[0].start] for end in (link.source, link.target))
            weights = np.asarray(output.attentions[0, :, :, source])[..., atoms]
            right = right + (atoms[weights.argmax(axis=-1)] == target)
            count += 1
    return right / count


def main(_):
    folder = pathlib.Path(_WORKDIR.value)
    folder.mkdir(parents=True, exist_ok=True)
    texts, annotations = read(_REACTIONS.value)
    settings = bs.analyses.TextSettings(annotations=annotations, max_length=512)
    called = f'{len(texts)} reactions'
    mapper = model_of('rxnmapper', 'albert_heads_8_uspto_all_1310k')
    before, after = (
        model_of('rxnfp', name, 'bert_pretrained', label_names=())
        for name in ('bert_pretrained', 'bert_ft')
    )
    shares = found_atoms(mapper, texts, annotations)
    best = np.argsort(-shares, axis=None)[:8]
    heads = [np.unravel_index(each, shares.shape) for each in best]
    print(
        {f'L{layer + 1}-H{head + 1}': round(float(shares[layer, head]), 3) for layer, head in heads}
    )
    results = {
        'links': bs.analyses.relations(
            mapper,
            texts,
            relations=[RELATION],
            settings=settings,
            subject=bs.analyses.Subject('rxnmapper', called),
        ),
        'masked_lm': bs.analyses.masked_lm_ablation(
            mapper,
            texts,
            compute=bs.Compute(max_length=512),
            subject=bs.analyses.Subject('rxnmapper', called),
        ),
        'change': bs.analyses.attention_change(
            before, after, texts, settings=settings, subject=bs.analyses.Subject('rxnfp', called)
        ),
    }
    for name, result in results.items():
        print(result)
        for table, frame in result.frames().items():
            frame.to_csv(folder / f'{name}_{table}.csv', index=False)
        for drawn, figure in result.figures().items():
            figure.savefig(folder / f'{name}_{drawn}.png', dpi=110)


if __name__ == '__main__':
    app.run(main)
