"""A section of reports and a program, as an analysis declares it."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Literal

from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.runs.result import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declaration:
    """A section of reports: an analysis, bound to inputs and settings, as `SECTION` of its module.

    Attributes:
      analysis: The function, after which the section is named. It takes `settings` and `subject`.
      title: The question of the section, in a line.
      group: The group of the report that it belongs to, a name of `programs.titles.GROUPS`.
      inputs: The names of the inputs that stand first: 'pretrained', 'texts', 'tuned', 'train',
        'ablated', 'measured', 'trees' or 'dev_trees'.
      settings: Arguments by name, and the dotted names of the settings that give their values.
      statistics: The statistics of the model as it is that are measured in the pass which sections
        share, through `TextSettings.tables`.
      needs: The inputs that a run must have. 'words' is a spaCy pipeline.
      passes, seconds: About how many forward passes over the texts it takes besides the shared one,
        and how many seconds besides.
      asked: When a report has it: 'always', with 'all' sections, or only by its 'name'.
    """

    analysis: Callable[..., Result]
    title: str
    group: str = 'What heads do'
    inputs: tuple[str, ...] = ('pretrained', 'texts')
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    statistics: tuple[Described, ...] = ()
    needs: tuple[Literal['words', 'trees', 'training', 'classifier'], ...] = ()
    passes: float | int = 0
    seconds: float | int = 1
    asked: Literal['always', 'all', 'name'] = 'all'

    @property
    def name(self) -> str:
        """The name of the section and of the program."""
        return self.analysis.__name__
