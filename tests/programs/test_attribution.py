"""Attribution in a run: computed once, kept, and the same as the library's."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.tasks import draw
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sections import SECTIONS, applicable
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.runs.folder import open_folder


@pytest.mark.slow
def test_attribution_is_computed_once_and_needs_labels(small):
    study, config = small, small.config
    config.attribution.max_examples = 6
    open_folder(study.folder, config.to_dict())
    assert 'attribution' in applicable(study)
    write_report([study], ['attribution'])
    for name in ('attribution_methods.csv', 'attribution_curves.csv', 'attribution_tokens.csv'):
        assert (study.folder / name).exists()
    for name in ('attribution_curves', 'attribution_methods'):
        assert (study.folder / 'figures' / f'{name}.pdf').exists()
    page = (study.folder / 'report.html').read_text()
    assert '<h2>Which tokens a prediction comes from</h2>' in page
    # Unfinished work is removed.
    assert not list(study.folder.glob('unfinished/attribution*'))
    ours = SECTIONS['attribution'].answer(Study(config, study.folder, read_only=True), {})
    drawn = draw(study.ablated_texts, 6, study.config.seed)
    theirs = bs.token_scores(
        study.ablated_model(), drawn, methods=('DecompX',), compute=bs.Compute(max_length=24)
    )
    for shown, scores in zip(ours.token_scores, theirs.scores['DecompX'], strict=False):
        np.testing.assert_allclose(shown.scores['DecompX'], scores, atol=1e-5)
    assert ours.subject == study.subject and len(ours.test.tokens) == 6
    study.config.data.source, study.config.data.label = 'file', None
    assert 'label' in SECTIONS['attribution'].needs(study)
