"""A whole run as a user starts it: its results, resuming, and what is computed again."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from experiments import heads
from tests.conftest import ROOT
from tests.experiments.conftest import error_line, read, run, settings


@pytest.fixture(scope='module')
def finished(tmp_path_factory, checkpoint, glue_dir):
    workdir = tmp_path_factory.mktemp('run') / 'mrpc'
    return workdir, run('reproduce', *settings(checkpoint, glue_dir, workdir))


def test_results_are_files(finished):
    workdir, result = finished
    assert result.stdout.strip().splitlines()[-1] == f'Report: {workdir / "report.html"}'
    for name in (
        'special_tokens',
        'special_tokens_by_layer',
        'patterns',
        'patterns_heads',
        'patterns_changed',
        'patterns_examples',
        'neighbours',
        'entropy',
        'maps3_all',
        'special_tokens_finetuned',
        'features',
        'features_finetuned',
        'features_change',
        'relations',
        'relations_distances',
        'cls_tokens',
        'frames',
        'frames1',
    ):
        for suffix in ('pdf', 'svg', 'png'):
            assert (workdir / 'figures' / f'{name}.{suffix}').stat().st_size > 1000
    assert {'config.json', 'versions.json', 'log.txt'} <= set(os.listdir(workdir))
    assert 'Attention: 20/20 examples' in (workdir / 'log.txt').read_text()
    page = (workdir / 'report.html').read_text()
    assert 'on 20 examples of MRPC dev' in page and 'the paper, digitised' in page
    assert '87.9 / 82.3' in page and 'fine-tuned on 20 examples of MRPC train' in page


def test_claims_have_verdicts(finished):
    """Twenty examples of a tiny model decide little; nothing that was measured is missing."""
    workdir, _ = finished
    found = {row['claim']: row for row in read(workdir / 'claims.csv')}
    assert len(found) == 12
    missing = [row for row in found.values() if row['verdict'] == 'not measured']
    assert [row['evidence'] for row in missing] == [
        'Needs the section finetune from both starts, in a new --workdir: '
        "\"--config.train.starts=('pretrained', 'random')\"."
    ]
    layers = found['Fine-tuning changes the attention of the last two layers most.']
    assert layers['evidence'].startswith('Of 2 runs: ') and 'Fine-tuned, seed 0' in str(layers)
    similar = [
        np.mean([float(row['mean']) for row in read(workdir / 'heads_seed0.csv')
                 if row['statistic'] == 'cosine' and row['layer'] == layer])
        for layer in '23'
    ]  # fmt: skip
    assert 'Similarity is {:.3f} in layer 2 and {:.3f} in layer 3'.format(*similar) in str(layers)
    page = (workdir / 'report.html').read_text()
    assert '<section id="part1"><h2>Which claims of the paper hold for this model' in page


def _is_vertical(attentions, marks):
    value, weight = bs.patterns.pattern(bs.patterns.load_classifier())(attentions, marks)
    return value[..., bs.patterns.CLASSES.index('vertical')], weight


def test_the_table_holds_what_the_library_measures(finished, checkpoint, glue_dir):
    workdir, _ = finished
    model = bs.from_pretrained(checkpoint)
    examples = bs.read_glue(glue_dir, bs.get_task('mrpc'))
    annotations = bs.annotate(examples)
    batches = bs.encode(model.tokenizer, examples, annotations=annotations, max_length=24)
    expected = bs.collect(
        model.bert,
        model.params,
        batches,
        heads.SPECIAL
        | {
            'noun': bs.statistics.attention_to('noun'),
            heads.PATTERNS[0]: _is_vertical,
            'verb (notebook)': bs.statistics.attention_to('verb@notebook', among='token'),
            'from [CLS] to object': bs.statistics.cls_to('object'),
            'subject to verb': bs.statistics.attention_of_links('verb-subject', reverse=True),
            'verb to subject (notebook)': bs.statistics.attention_of_links(
                'verb-nsubj@notebook', among='token'
            ),
        },
    )
    rows = read(workdir / 'heads.csv')
    # Special tokens and the like, features, from [CLS], relations (the second number: notebook),
    # and patterns.
    assert len(rows) == (7 + 7 + 6 + 9 + 6 + 4 + 2 + 5) * 3 * 4
    rows = [row for row in rows if row['statistic'] in expected]
    assert len(rows) == 13 * 3 * 4
    for row in rows:
        table = expected[row['statistic']]
        mean = table.mean[int(row['layer']) - 1, int(row['head']) - 1]
        assert float(row['mean']) == pytest.approx(mean, abs=2e-6)
        assert float(row['examples']) == table.count > 0


def test_a_finished_run_is_read_and_not_computed_again(finished, checkpoint, glue_dir, tmp_path):
    """The texts and the checkpoint are gone, and yet the same report comes out."""
    workdir, _ = finished
    before = (workdir / 'report.html').read_text()
    (workdir / 'report.html').unlink()
    hidden = checkpoint.rename(tmp_path / 'checkpoint'), glue_dir.rename(tmp_path / 'glue')
    try:
        run('reproduce', *settings(checkpoint, glue_dir, workdir))
    finally:
        hidden[0].rename(checkpoint)
        hidden[1].rename(glue_dir)
    assert (workdir / 'report.html').read_text() == before


def test_fine_tuned_checkpoints_are_ordinary_ones(finished, checkpoint):
    workdir, _ = finished
    before = bs.from_pretrained(checkpoint)
    for seed in (0, 1):
        for which in ('last', 'best'):
            model = bs.from_pretrained(workdir / 'finetune' / 'pretrained' / f'seed{seed}' / which)
            assert model.config.label_names == ('0', '1')
            moved = (
                model.params['layers']['output']['kernel']
                - before.params['layers']['output']['kernel']
            )
            assert 0 < np.abs(moved).max() < 1


def test_the_change_is_what_the_library_measures(finished, checkpoint, glue_dir):
    workdir, _ = finished
    before = bs.from_pretrained(checkpoint)
    after = bs.from_pretrained(workdir / 'finetune' / 'pretrained' / 'seed1' / 'last')
    examples = bs.read_glue(glue_dir, bs.get_task('mrpc'))
    similar = []
    for batch in bs.encode(before.tokenizer, examples, max_length=24, tokens_per_batch=24):
        maps = [np.asarray(m.bert.apply({'params': m.params}, **batch.inputs).attentions)
                for m in (before, after)]  # fmt: skip
        for row in range(len(batch.example)):
            a, b = (m[row, :, :, : batch.lengths[row], : batch.lengths[row]].reshape(3, 4, -1)
                    for m in maps)  # fmt: skip
            norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
            similar.append((a * b).sum(-1) / norms)
    rows = read(workdir / 'heads_seed1.csv')
    of = lambda name: np.array(
        [float(row['mean']) for row in rows if row['statistic'] == name]
    ).reshape(3, 4)
    means = of('cosine')
    # Means of differences are differences of means, where the statistic applies to the same texts.
    tables = [
        bs.collect(
            m.bert,
            m.params,
            bs.encode(m.tokenizer, examples, max_length=24),
            {'[CLS]': bs.statistics.to_cls},
        )['[CLS]'].mean
        for m in (before, after)
    ]
    np.testing.assert_allclose(of('[CLS]'), tables[1], atol=2e-6)
    np.testing.assert_allclose(of('change of [CLS]'), tables[1] - tables[0], atol=2e-6)
    np.testing.assert_allclose(means, np.mean(similar, axis=0), atol=5e-6)
    assert means.min() < 0.9999


@pytest.fixture(scope='module')
def finetuned(finished):
    return bs.from_pretrained(finished[0] / 'finetune' / 'pretrained' / 'seed0' / 'last')


def naive_accuracy(model, glue_dir, masks) -> np.ndarray:
    """Return the accuracy [K] of one forward pass per mask over single examples."""
    examples = bs.read_glue(glue_dir, bs.get_task('mrpc'))
    labels = np.array([example.label for example in examples])
    forward = jax.jit(
        lambda batch, mask: (
            model.bert.apply({'params': model.params}, **batch.inputs, head_mask=mask).logits
        )
    )
    batches = bs.encode(model.tokenizer, examples, max_length=24, buckets=(), tokens_per_batch=480)
    assert len(batches) == 1
    order = batches[0].example
    return np.array(
        [np.mean(forward(batches[0], mask).argmax(axis=-1) == labels[order]) for mask in masks]
    )


def test_ablation_is_what_one_pass_per_head_gives(finished, finetuned, glue_dir):
    workdir, _ = finished
    for name, masks in (
        ('heads', bs.masks.single_heads(finetuned.config)),
        ('layers', bs.masks.single_layers(finetuned.config)),
        ('one_head_left', bs.masks.one_head_left(finetuned.config)),
    ):
        rows = [
            row for row in read(workdir / f'ablation_{name}.csv') if row['metric'] == 'accuracy'
        ]
        expected = naive_accuracy(finetuned, glue_dir, masks)
        assert [float(row['score']) for row in rows] == pytest.approx(expected)
        intact = naive_accuracy(finetuned, glue_dir, bs.masks.none(finetuned.config))
        # Rows in another order would show.
        assert np.ptp(expected) > 0
        assert [float(row['difference']) for row in rows] == pytest.approx(expected - intact)
        assert {row['test'] for row in rows} == {'exact McNemar'}
    disabled = [row['disabled'] for row in rows]
    assert disabled[:2] == ['L1 but L1-H1', 'L1 but L1-H2'] and len(disabled) == 12
    page = (workdir / 'report.html').read_text()
    assert 'of 12 heads' in page and 'Rank correlation' not in page.split('Disabling heads')[-1]


def test_the_explorer_has_both_models_and_what_is_known_of_each_head(finished, finetuned):
    workdir, _ = finished
    page = (workdir / 'report.html').read_text()
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page, re.S)
    data = json.loads(text)
    assert data['shape'] == [3, 4] and data['models'][1] == 'fine-tuned'
    assert len(data['sentences']) == 3
    stored = np.load(workdir / 'maps_seed0.npz')
    for index, sentence in enumerate(data['sentences']):
        ids = np.array([finetuned.tokenizer.convert_tokens_to_ids(sentence['tokens'])])
        ends = ids == finetuned.tokenizer.sep_token_id
        output = finetuned.bert.apply(
            {'params': finetuned.params}, ids, np.cumsum(ends, axis=1) - ends, np.ones_like(ids)
        )
        np.testing.assert_allclose(stored[f'maps{index}'], output.attentions[0], atol=2e-6)
        size = ids.shape[1] ** 2
        # The first model's weights, and what fine-tuning adds to them.
        decoded = 0
        for kept, greatest, zero, steps in zip(
            sentence['maps'], sentence['greatest'], (0, 128), (255, 127), strict=True
        ):
            quantised = np.frombuffer(base64.b64decode(kept), np.uint8).astype(float)
            decoded += (quantised.reshape(12, size) - zero) / steps * np.array(greatest)[:, None]
        np.testing.assert_allclose(
            decoded, output.attentions[0].reshape(12, size), atol=1 / 510 + 1 / 254 + 1e-5
        )
    notes = dict(data['notes'])
    effects = [row for row in read(workdir / 'ablation_heads.csv') if row['metric'] == 'f1']
    assert len(effects) == 12
    for row, text in zip(effects, notes['F1 without it (fine-tuned)'], strict=True):
        low, high = (100 * float(row[name]) for name in ('low', 'high'))
        assert text.startswith(f'{100 * float(row["difference"]):+.2f} points ({low:+.2f} to')
        assert f' to {high:+.2f}, p = ' in text
    measured = {
        (row['statistic'], row['layer'], row['head']): row for row in read(workdir / 'heads.csv')
    }
    row = measured['[SEP]', '2', '3']
    shown = f'{float(row["mean"]):.4f} ± {float(row["standard_error"]):.4f}, fine-tuned 0.'
    assert notes['attention to [SEP]'][6].startswith(shown)


def test_other_settings_of_the_ablation_need_no_new_folder(
    finished, checkpoint, glue_dir, tmp_path
):
    workdir = tmp_path / 'run'
    shutil.copytree(finished[0], workdir)
    given = settings(checkpoint, glue_dir, workdir)
    uniform = read(workdir / 'ablation_heads.csv')
    files = {file: file.stat().st_mtime_ns for file in (workdir / 'ablation').iterdir()}
    run('ablate', *given, '--config.ablation.baseline=zero', "--config.ablation.sets=('heads',)")
    zero = read(workdir / 'ablation_heads.csv')
    assert [row['disabled'] for row in zero] == [row['disabled'] for row in uniform]
    assert zero != uniform
    assert json.loads((workdir / 'config.json').read_text())['ablation']['baseline'] == 'zero'
    result = run('ablate', *given)
    assert read(workdir / 'ablation_heads.csv') == uniform
    # Nothing of the first settings was measured again.
    assert 'masks x examples' not in result.stderr
    assert {file: file.stat().st_mtime_ns for file in files} == files


def test_a_table_of_ones_own_needs_no_training_texts(finished, tmp_path):
    """A fine-tuned checkpoint is ablated on a file: names and metrics come with the model."""
    finetuned = finished[0] / 'finetune' / 'pretrained' / 'seed0' / 'last'
    table = tmp_path / 'own.tsv'
    rows = [
        f'{row % 2}\tthe cat saw a dog\tshe ran {"not" if row % 3 else "and"}' for row in range(9)
    ]
    table.write_text('\n'.join(['label\tfirst\tsecond', *rows]) + '\n')
    given = (
        '--config=configs/paper.py', '--config.data.source=file', f'--config.data.file={table}',
        '--config.data.text_a=first', '--config.data.text_b=second',
        f'--config.model.name={finetuned}', '--config.ablation.checkpoint=model',
        "--config.ablation.sets=('layers',)",
    )  # fmt: skip
    result = run('ablate', *given, f'--workdir={tmp_path / "unlabelled"}', ok=False)
    assert 'Ablation needs labels: --config.data.label=COLUMN.' in error_line(result)
    run('ablate', *given, '--config.data.label=label', f'--workdir={tmp_path / "run"}')
    rows = read(tmp_path / 'run' / 'ablation_layers.csv')
    assert [(row['metric'], row['disabled']) for row in rows] == [
        (metric, f'L{layer}') for metric in ('f1', 'accuracy') for layer in (1, 2, 3)
    ]


def test_a_checkpoint_that_is_fine_tuned_already(finished, checkpoint, glue_dir, tmp_path):
    """Ablated as it is; a list of heads too; and pairs of heads beyond the sum of two."""
    finetuned = finished[0] / 'finetune' / 'pretrained' / 'seed0' / 'last'
    given = (
        *settings(finetuned, glue_dir, tmp_path / 'run'),
        '--config.ablation.checkpoint=model',
        "--config.ablation.sets=('heads',)",
        '--config.ablation.together=L1-H2,L3-H1',
        '--config.ablation.pairs_of=L1-H2,L3-H1,L3-H2',
    )
    run('ablate', *given)
    assert not (tmp_path / 'run' / 'finetune').exists()
    run('interactions', *given)
    heads = read(finished[0] / 'ablation_heads.csv')
    assert read(tmp_path / 'run' / 'ablation_heads.csv') == heads
    (both,) = (
        float(row['difference'])
        for row in read(tmp_path / 'run' / 'ablation_together.csv')
        if row['metric'] == 'f1'
    )
    alone = {row['disabled']: float(row['difference']) for row in heads if row['metric'] == 'f1'}
    pairs = read(tmp_path / 'run' / 'interactions.csv')
    assert [(row['head_a'], row['head_b']) for row in pairs] == [
        ('L1-H2', 'L3-H1'), ('L1-H2', 'L3-H2'), ('L3-H1', 'L3-H2'),
    ]  # fmt: skip
    beyond = both - alone['L1-H2'] - alone['L3-H1']
    assert float(pairs[0]['interaction_f1']) == pytest.approx(100 * beyond, abs=1e-6)
    assert 0 < float(pairs[0]['familywise']) <= 1
    assert float(pairs[0]['low']) < float(pairs[0]['interaction_loss']) < float(pairs[0]['high'])
    assert (tmp_path / 'run' / 'figures' / 'interactions.pdf').exists()
    shutil.copytree(finetuned, tmp_path / 'swapped')
    file = tmp_path / 'swapped' / 'config.json'
    values = json.loads(file.read_text())
    values |= {'id2label': {'0': '1', '1': '0'}, 'label2id': {'1': 0, '0': 1}}
    file.write_text(json.dumps(values))
    swapped = settings(tmp_path / 'swapped', glue_dir, tmp_path / 'of_swapped')
    result = run('ablate', *swapped, '--config.ablation.checkpoint=model', ok=False)
    assert 'swapped numbers its classes 1, 0, and the labels are numbered 0, 1' in error_line(
        result
    )
    wrong = settings(checkpoint, glue_dir, tmp_path / 'wrong')
    for changed, message in (
        ('checkpoint=model', 'has 3 classes and MRPC dev 2'),
        ('together=L9-H1', 'L9-H1 does not exist: the model has 3 layers of 4 heads'),
        ('sets=()', 'Nothing to ablate: give ablation.sets'),
        ("sets=('head',)", 'ablation.sets are heads, layers, one_head_left, not head'),
        ('baseline=mean', "baseline='mean' is unknown"),
    ):
        result = run('ablate', *wrong, f'--config.ablation.{changed}', ok=False)
        assert message in error_line(result)
        # Before anything is trained, and the mended command is welcome in the same folder.
        assert not (tmp_path / 'wrong' / 'finetune').exists()


def test_killed_and_resumed_equals_uninterrupted(finished, checkpoint, glue_dir, tmp_path):
    """kill -9 after the first checkpoint; the same command again; the same bits."""
    workdir, _ = finished
    arguments = settings(checkpoint, glue_dir, tmp_path / 'run')
    checkpoints = tmp_path / 'run' / 'finetune' / 'pretrained' / 'checkpoints'
    process = subprocess.Popen(
        [sys.executable, '-m', 'experiments.finetune', *map(str, arguments)],
        cwd=ROOT, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        # Checkpoints are named by their step: 0 before training, 3 after the first epoch.
        while not (checkpoints / '3' / 'commit_success.txt').exists():
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / 'run' / 'finetune' / 'pretrained' / 'outcome.json').exists()
    run('finetune', *arguments)
    for seed in (0, 1):
        parts = ('finetune', 'pretrained', f'seed{seed}', 'last', 'model.safetensors')
        resumed, uninterrupted = (
            folder.joinpath(*parts).read_bytes() for folder in (tmp_path / 'run', workdir)
        )
        assert resumed == uninterrupted
    curves = [
        folder / 'finetune' / 'pretrained' / 'curve.jsonl' for folder in (tmp_path / 'run', workdir)
    ]
    assert curves[0].read_text() == curves[1].read_text()


def test_another_config_in_the_same_folder_is_refused(finished, checkpoint, glue_dir):
    workdir, _ = finished
    result = run(
        'reproduce',
        *settings(checkpoint, glue_dir, workdir),
        '--config.seed=7',
        ok=False,
    )
    assert 'seed was 0, is 7' in result.stderr and 'choose another --workdir' in result.stderr
