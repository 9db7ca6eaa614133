"""Files of a section: those of its last result, written once, and no others."""

import dataclasses
import json

import numpy as np
import pandas
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.programs import outputs
from bert_secrets_jax.report.page import Part
from bert_secrets_jax.runs.result import Figures, Finding, Result


class Toy(Result):
    """A result with a table and a figure for each of its names."""

    names: tuple[str, ...] = ('a', 'b')
    drawn: list = dataclasses.field(default_factory=list)

    def frames(self):
        return {name: pandas.DataFrame({'name': [name], 'value': [0.5]}) for name in self.names}

    def figures(self):
        def draw():
            self.drawn.append(1)
            figure = bs.plots.head_grids({'x': np.eye(2)}, label='x')
            figure.caption = 'A grid.'
            return figure

        return Figures(dict.fromkeys(self.names, draw), only_files=['b'])

    def findings(self):
        return [
            Finding(name='one', estimate=0.5, unit='x', source='here', template='It is {estimate}.')
        ]


def files(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file()
    )


def test_files_of_a_section(tmp_path):
    part = outputs.write_part(tmp_path, Part('toy', Toy()), 'state')
    figures = [f'figures/toy_{name}.{suffix}' for name in 'ab' for suffix in ('pdf', 'png', 'svg')]
    listed = [*figures, 'findings/toy.csv', 'outputs.json', 'toy_a.csv', 'toy_b.csv']
    assert files(tmp_path) == listed
    assert (tmp_path / 'toy_a.csv').read_text() == 'name,value\na,0.5\n'
    found = pandas.read_csv(tmp_path / 'findings' / 'toy.csv')
    assert found['sentence'].tolist() == ['It is 0.5.']
    # The page has those that are not only files.
    assert [(picture.name, picture.caption) for picture in part.pictures] == [('toy_a', 'A grid.')]
    assert '<svg' in part.pictures[0].svg
    # A later result of the section has less: what it no longer has is gone.
    outputs.write_part(tmp_path, Part('toy', Toy(('a',))), 'another')
    assert not [file for file in files(tmp_path) if file.startswith(('toy_b', 'figures/toy_b'))]
    outputs.write_part(tmp_path, Part('other', Toy(('a',))), '')
    outputs.remove_parts(tmp_path, ['toy', 'never there'])
    assert [file for file in files(tmp_path) if 'toy' in file] == []
    assert 'other_a.csv' in files(tmp_path)


def test_what_is_written_is_not_drawn_again(tmp_path):
    result = Toy()
    part = Part('toy', result)
    first = outputs.write_part(tmp_path, part, 'other')
    assert len(result.drawn) == 2
    assert outputs.read_part(tmp_path, part, 'other') == first
    assert len(result.drawn) == 2


@pytest.mark.parametrize('lost', ['toy_b.csv', 'figures/toy_a.svg', 'figures/toy_b.pdf', 'made of'])
def test_what_is_lost_or_other_is_written_again(tmp_path, lost):
    result, used = Toy(), 'state'
    outputs.write_part(tmp_path, Part('toy', result), used)
    before = files(tmp_path)
    if lost == 'made of':
        used = 'another'
    else:
        (tmp_path / lost).unlink()
    outputs.read_part(tmp_path, Part('toy', result), used)
    assert len(result.drawn) == 4 and files(tmp_path) == before


def test_a_damaged_list_of_files_is_written_anew(tmp_path):
    outputs.write_part(tmp_path, Part('toy', Toy()), '')
    (tmp_path / 'outputs.json').write_text('{"toy": ')
    outputs.read_part(tmp_path, Part('toy', Toy()), '')
    assert list(json.loads((tmp_path / 'outputs.json').read_text())) == ['toy']
