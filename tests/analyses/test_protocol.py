"""Every result keeps to the protocol, of which everything that a person sees is made."""

import dataclasses
import math
import re
import string

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses import verdicts as claims
from bert_secrets_jax.analyses.attention_change import ON_AVERAGE
from bert_secrets_jax.analyses.claims import claims_over_tasks
from bert_secrets_jax.analyses.special_tokens import SpecialTokens
from bert_secrets_jax.analyses.verdicts import HOLDS, UNDECIDED
from bert_secrets_jax.names import filled
from bert_secrets_jax.programs.report import SECTIONS
from bert_secrets_jax.report.page import Part, figure_numbers, grids, traced, write_page
from bert_secrets_jax.runs import store
from tests.conftest import random_params, relative
from tests.words import MOST_AT_LOAD, MOST_WORDS, count_words, longest_sentence, texts_of

NAMES = [name for name in bs.analyses.__all__ if name.islower()]


def test_every_analysis_is_here(results):
    assert set(NAMES) == set(results)


@pytest.mark.parametrize('name', NAMES)
def test_frames_are_tidy(results, name):
    frames = results[name].frames()
    assert frames or name == 'example_maps'
    for title, frame in frames.items():
        assert len(frame) and len(set(frame.columns)) == len(frame.columns), title
        assert all(frame.columns), title
        # Any two frames about heads merge on their numbers.
        words = frame.select_dtypes(['object', 'str'])
        heads = [
            name for name in words if words[name].astype(str).str.fullmatch(r'L\d+-H\d+').all()
        ]
        assert len(heads) != 1 or 'head_' in heads[0] or {'layer', 'head'} <= set(frame), title
        if 'head' in frame:
            assert {frame['layer'].dtype.kind, frame['head'].dtype.kind} == {'i'}, title
        for column, most in (('layer', 3), ('head', 4)):
            if column in frame and frame[column].dtype.kind in 'iu':
                ends = int(frame[column].min()), int(frame[column].max())
                # Where rows have names, they may be about some heads alone.
                some = {'disabled', 'head_left', 'name'} & set(frame) and 1 <= ends[0] <= ends[
                    1
                ] <= most
                assert ends == (1, most) or some, title


def test_of_one_head_nothing_is_the_most(model, texts, settings):
    config = dataclasses.replace(model.config, num_hidden_layers=1, num_attention_heads=1)
    bert = bs.Bert(config)
    one = bs.Pretrained(bert, random_params(bert), model.tokenizer)
    found = [
        bs.analyses.special_tokens(one, texts, settings=settings),
        bs.analyses.relations(one, texts, draws=9, settings=settings),
        bs.analyses.attention_change(one, one, texts, settings=settings),
    ]
    told = ' '.join(each.sentence for result in found for each in result.findings())
    assert 'L1-H1' in told and not re.search('most|least|best|greatest|smallest', told)


def test_global_and_local_layers_apart(model, texts, settings, results, tmp_path):
    assert 'reach' not in results['special_tokens'].frames()
    bare = dataclasses.replace(model.config, label_names=(), add_pooler=False)
    bert = bs.Bert(relative(bare, 'modernbert'))
    local = bs.Pretrained(bert, random_params(bert), model.tokenizer)
    store.write(tmp_path / 'kept', bs.analyses.special_tokens(local, texts, settings=settings))
    found = store.read(tmp_path / 'kept', SpecialTokens)
    frame, sep = found.frames()['reach'].set_index('layers'), found.tables['[SEP]'].mean
    assert frame['number'].to_dict() == {'global': 1, 'local, 2 tokens to each side': 2}
    np.testing.assert_allclose(frame['[SEP]'], [sep[0].mean(), sep[1:].mean()])


@pytest.mark.slow
@pytest.mark.parametrize('name', NAMES)
def test_figures_are_drawn_when_asked_for(results, name, tmp_path):
    figures = results[name].figures()
    for title in figures:
        figure = figures[title]
        assert figure.caption.endswith('.') or name == 'example_maps', title
        svg = bs.plots.save(figure, tmp_path, title)
        assert svg.stat().st_size > 1000
    assert set(figures.shown()) <= set(figures)
    with pytest.raises(KeyError, match='There is no figure'):
        figures['none such']


def drawn(results, name):
    """The figures of a result as a page draws them, and the frames that they are of."""
    result, heads = results[name], ('', 3, 4)
    found = grids(result.frames(), heads)
    figures = result.figures()
    numbers = {title: figure_numbers(figures[title], '') for title in figures.shown()}
    return found, {title: traced(each, found, heads) for title, each in numbers.items()}


@pytest.mark.parametrize('name', NAMES)
def test_a_figure_shows_the_column_that_it_names(results, name):
    """A mean over the heads of a layer where that is drawn, and over fine-tunings."""
    found, figures = drawn(results, name)
    for title, figure in figures.items():
        for one in [each for panel in figure['panels'] for each in panel['sets']] if figure else ():
            if not one['rows']:
                # Places on a plane are in no column.
                assert title == 'clusters', (title, one['of'])
                continue
            values = np.mean(
                [
                    np.array(found[frame]['sets'][number]['values'][column], float)
                    for frame, number, column in one['rows']
                ],
                axis=0,
            )
            if len(values) > len(one['values']):
                by_layer = values.reshape(3, 4)
                last = figure['kind'] == 'features'
                values = by_layer[figure['layer']] if last else by_layer.mean(axis=1)
            # Both are rounded to five digits, and so is what a mean is of.
            np.testing.assert_allclose(
                np.array(one['values'], float) - one['start'],
                one['times'] * values,
                rtol=2e-4,
                atol=1e-6,
                err_msg=title,
            )


@pytest.mark.parametrize('name', NAMES)
def test_all_heads_of_a_declared_frame_are_on_the_page(results, name):
    found, _ = drawn(results, name)
    declared = {title for title, each in results[name].frames().items() if 'colours' in each.attrs}
    assert {each['name'] for each in found} == declared
    for grids_of in (results[name].head_tables(), results[name].head_notes()):
        assert all(grid.shape == (3, 4) for grid in grids_of.values())


@pytest.mark.parametrize('name', NAMES)
def test_no_sentence_has_a_number_that_is_no_field(results, name):
    for finding in results[name].findings():
        literal = ''.join(text for text, *_ in string.Formatter().parse(finding.template))
        assert not any(letter.isdigit() for letter in literal), finding.template
        assert re.match(r'[A-Z\d[]', finding.sentence)
        assert finding.sentence.rstrip().endswith('.') and '  ' not in finding.sentence
        assert 'nan' not in finding.sentence.lower().split()
        assert finding.unit and finding.source and isinstance(finding.sample, int)
        if not math.isnan(finding.low):
            assert finding.low <= finding.estimate <= finding.high
    names = [finding.name for finding in results[name].findings()]
    assert len(set(names)) == len(names)


_ALONE = r'(?<![\d.,+-])1'
_PLURAL_VERBS = 'are|have|leave|do|give|lose|attend|find|keep|change|make'
_PLURALS = 'examples|texts|seeds|runs|sentences|links|models|maps|pairs|methods|claims|points'


@pytest.mark.parametrize('name', NAMES)
def test_sentences_agree_with_their_counts(results, name):
    """Also where one is counted, which is rare here."""
    for finding in results[name].findings():
        own = {field.name: getattr(finding, field.name) for field in dataclasses.fields(finding)}
        fields = {'record': finding.record} | own | dict(finding.numbers)
        ones = {key: 1 if type(value) is int else value for key, value in fields.items()}
        said = filled(finding.template, ones)
        assert not re.search(rf'{_ALONE} (of \S+ (\w+ )?)?({_PLURAL_VERBS})\b', said), said
        assert not re.search(rf'(?<!of ){_ALONE} ({_PLURALS})\b', said), said


# The sentences of the others are longer still.
@pytest.mark.parametrize('name', NAMES)
def test_what_a_person_reads_is_short(results, name):
    """Findings are records, not essays: a sentence has at most 25 words, wherever it stands."""
    result = results[name]
    said = [each.sentence for each in result.findings()]
    assert all(count_words(each.headline) <= 14 for each in result.findings())
    assert name != 'claims' or '…' not in result.findings()[0].headline
    assert all(len(re.split(r'[.!?] +(?=[A-Z])', each)) <= 2 for each in said)
    said += result.all_notes() + [frame.attrs['caption'] for frame in result.frames().values()]
    figures = result.figures()
    said += [figures[title].caption for title in figures]
    assert [text for text in said if longest_sentence(text) > 25] == []


def test_a_page_of_everything_is_short(results, tmp_path):
    """Every section together is read in a quarter of an hour, whatever is folded away."""
    shown = {name: result for name, result in results.items() if name in SECTIONS}
    parts = [Part(name, result, chapter='All') for name, result in shown.items()]
    write_page(tmp_path / 'page.html', title='All', lead='Of all.', parts=parts, details={})
    page = (tmp_path / 'page.html').read_text()
    texts = texts_of(page)
    assert sum(map(count_words, texts_of(page, at_load=True))) <= MOST_AT_LOAD
    assert sum(map(count_words, texts)) <= MOST_WORDS
    assert [text for text in texts if longest_sentence(text) > 25] == []


@pytest.mark.parametrize('name', NAMES)
def test_saved_and_loaded_it_says_the_same(results, name, tmp_path):
    before = results[name]
    before.save(tmp_path / 'result.npz')
    after = type(before).load(tmp_path / 'result.npz')
    assert str(after) == str(before) and after.notes() == before.notes()
    assert list(after.figures()) == list(before.figures())
    for title, frame in before.frames().items():
        other = after.frames()[title]
        assert list(other.columns) == list(frame.columns)
        for column in frame.columns:
            np.testing.assert_array_equal(other[column].to_numpy(), frame[column].to_numpy())
    assert {key: notes.tolist() for key, notes in after.head_notes().items()} == {
        key: notes.tolist() for key, notes in before.head_notes().items()
    }


@pytest.mark.parametrize('name', NAMES)
def test_notebooks_show_it(results, name):
    result = results[name]
    shown = result._repr_html_()
    assert result.title in shown and shown.count('<img') == len(result.figures().shown())
    # Short, and nothing is drawn for it.
    assert len(repr(result)) < 1000


def test_frames_hold_what_findings_say(results):
    """The numbers of sentences are those of the frames."""
    special = results['special_tokens']
    heads = special.frames()['heads']
    found = {finding.name: finding.estimate for finding in special.findings()}
    first = special.statistics[0]
    values = heads[heads['statistic'] == first.name]['mean']
    assert found[f'{first.title}, greatest'] == pytest.approx(values.max())
    means = special.tables['[SEP]'].mean.mean(axis=1)
    np.testing.assert_allclose(special.frames()['layers']['[SEP]'], means)
    change = results['attention_change']
    found = {each.name: each for each in change.findings()}[ON_AVERAGE]
    rows = change.frames()['changes'].set_index('statistic')
    assert found.estimate == pytest.approx(rows.loc[found.numbers['title'], 'mean_change'])
    numbers = found.numbers
    assert numbers['after'] - numbers['before'] == pytest.approx(found.estimate)
    assert (numbers['after'] > numbers['before']) == (numbers['moves'] == 'rises')
    claims = results['claims']
    counts = claims.frames()['claims']['verdict'].value_counts()
    assert claims.findings()[0].estimate == counts.get('holds', 0)


def test_a_model_that_learnt_nothing_is_said_first(results):
    first, *_ = results['finetuning'].findings()
    assert first.warning and re.search('Not learnt.*seed 0', first.sentence)
    assert re.search('Not learnt.*seeds 0 and 1', str(results['claims']))
    first, *_ = results['ablation'].findings()
    assert first.warning and re.search('Not learnt.*accuracy', first.sentence)
    # Also where nobody reported on the fine-tuning.
    alone = bs.analyses.claims(results['ablation'])
    assert 'whose heads were disabled has not learnt its task' in str(alone)


CLAIMS = {
    'look_at': (claims.SEP_HALF, claims.SEP_TO_SEP, claims.SEP_NO_OP),
    'contributions': (claims.SEP_MOVES_LITTLE,),
    'outliers': (claims.OUTLIERS_NEEDED,),
}


@pytest.mark.parametrize('name', CLAIMS)
def test_a_claim_is_tested_beside_its_result_alone(results, name):
    """Links between words that are no dependencies say nothing of Clark et al.'s relations."""
    found = {each.claim: each for each in bs.analyses.claims(results[name]).verdicts()}
    assert all(found[claim].verdict != claims.NOT_MEASURED for claim in CLAIMS[name])
    other = bs.analyses.claims(results['syntax_heads']).verdicts()
    others = {each.claim: each.verdict for each in other}
    assert all(others.get(claim) in (None, claims.NOT_MEASURED) for claim in CLAIMS[name])
    assert others[claims.RELATION_HEADS] == claims.NOT_MEASURED
    compared = results['comparison'].frames()['claims'].set_index('claim')
    assert {compared.loc[claim.text, 'own'] for claim in CLAIMS[name]} == {claims.NOT_MEASURED}


def test_a_task_without_published_numbers_runs_everywhere(model, tuned, texts, settings):
    """A task of one's own, by any name."""
    subject = bs.analyses.Subject('tiny', 'own texts', 'my-own-task')
    ablated = bs.analyses.ablation(tuned, texts, compute=bs.Compute(max_length=32), subject=subject)
    change = bs.analyses.attention_change(model, tuned, texts, settings=settings, subject=subject)
    tuned_result = bs.analyses.finetuning(tuned, subject=subject)
    for result in (ablated, change, tuned_result):
        assert 'paper: BERT-base' not in result._repr_html_()
        assert str(result) and [figure for figure in result.figures().values()]
    assert len(tuned_result.frames()['table1']) == 1


def test_claims_about_several_tasks(results):
    """The gain of fine-tuning from two tasks of the paper on; needed heads from STS-B and RTE."""
    tuned, ablation = results['finetuning'], results['ablation']

    def on(result, task):
        return dataclasses.replace(
            result, subject=dataclasses.replace(result.subject, task=task, model='tiny')
        )

    tasks = {task: [on(tuned, task), on(ablation, task)] for task in ('sts-b', 'rte')}
    (gains, heads) = claims_over_tasks(tasks)['tiny']
    assert gains.claim is claims.FINETUNING_GAINS and gains.sample == 2
    rows = tuned.starts['pretrained']
    before, after = (
        np.mean([row['accuracy'] for row in each]) for each in (rows.first_scores, rows.scores)
    )
    assert gains.numbers['ours'] == pytest.approx(100 * (after - before))
    assert gains.population == claims.THESE_MODELS
    # Both tasks have the same effects here, and so the same heads.
    assert heads.claim is claims.SAME_HEADS and heads.numbers['shared'] == 2
    assert heads.verdict in (HOLDS, UNDECIDED)
    alone = claims_over_tasks({'rte': tasks['rte']})['tiny']
    assert [each.verdict for each in alone] == [claims.NOT_MEASURED] * 2
    # Models are told apart.
    subject = dataclasses.replace(tuned.subject, task='rte', model='b')
    other = dataclasses.replace(tuned, subject=subject)
    assert set(claims_over_tasks({**tasks, 'b': [other]})) == {'tiny', 'b'}
