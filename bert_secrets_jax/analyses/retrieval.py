"""Which heads a search needs: the ranks of documents that answer queries, without each head.

Shapes: M masks, L layers, N heads, Q queries, P pairs of a query and a relevant document.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from bert_secrets_jax.ablation import embeddings
from bert_secrets_jax.ablation.masks import describe, with_intact
from bert_secrets_jax.analyses.common import disabling
from bert_secrets_jax.analyses.common.disabling import EmbeddingEffects, MaskSets
from bert_secrets_jax.analyses.common.inputs import check_several
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_name, check_numbers
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.corpus import search_sample, similarity_sample
from bert_secrets_jax.data.pairs import read_search
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.runs.call import Call, an_input, call

SOURCE = 'retrieval with embeddings, Thakur et al. 2021 (BEIR), section 3'
Texts = Sequence[str] | Mapping[Any, str]
Relevant = Iterable[tuple[Any, ...]] | Mapping[Any, Mapping[Any, float] | Iterable[Any]]


class Retrieval(EmbeddingEffects):
    """The effect of disabling each head and each layer on how documents are ranked for queries.

    Outcomes are MRR, nDCG@10 and recall@10.

    Attributes:
      documents: The number of documents.
    """

    documents: int

    title = 'Heads that a search needs'
    source: ClassVar[str] = SOURCE

    def notes(self):
        where = 'queries and documents' if self.sides == 'both' else 'queries alone'
        effects_of = next(iter(next(iter(self.outcomes.values())).values()))
        return [
            f'Heads are disabled for {where}. {disabling.instead(self.baseline)}',
            f'Losses of fewer than {effects_of.unseen:.0%} of queries may be missing among these '
            f"{effects_of.sample}: intervals take them as no larger than a typical head's.",
            'Of equally similar documents, those that are not relevant come first.',
        ]


def _needs(given) -> str:
    """The embedded ones are English, and made of the embedded pairs."""
    if given['retrieval.files']:
        return ''
    return given.lacks('pairs of texts', 'pairs', similarity_sample)


def _name(given) -> str:
    return given.named_by('retrieval.files', 'the example pairs')


@an_input(missing=_needs, label=_name)
def search(given) -> Call:
    """Return queries, documents and judgements: those of the settings, or the embedded ones."""
    files, columns = given['retrieval.files'], given['retrieval.columns']
    if not files:
        return call(search_sample)
    return call(read_search, *files, columns=columns, bad_rows=given['data.bad_rows'])


def _texts(search: Sequence[Any]) -> list[Example]:
    return [Example(text) for each in search[:2] for text in each.values()]


@analysis(
    question='which heads a search with embeddings needs',
    group='What matters',
    time='1 min',
    settings={
        'files': {
            'path': True,
            'help': 'A search of your own: three files (.tsv, .csv or .jsonl) and their columns, '
            'as in bs.read_search. None is an embedded one.',
            'default': [],
        },
        'columns': {'default': ['_id', 'text', 'query-id', 'corpus-id', 'score']},
    },
    reads=('retrieval.', 'ablation.baseline'),
    inputs={
        'pretrained': 'embedder',
        'queries': ('search', 0),
        'documents': ('search', 1),
        'relevant': ('search', 2),
        'baseline': 'ablation.baseline',
    },
    cost=lambda given: disabling.embedded_cost(given, 'search', _texts),
)
def retrieval(
    pretrained: Pretrained,
    queries: Texts,
    documents: Texts,
    relevant: Relevant | None = None,
    *,
    sides: str = 'both',
    masks: MaskSets = ('heads', 'layers'),
    baseline: str = 'uniform',
    prompts: tuple[str | None, str | None] = (None, None),
    seed: int = 0,
    compute: Compute | None = None,
) -> Retrieval:
    """Disable heads and layers one at a time, and measure how well documents are found.

    Documents are ranked by their cosine with the query. Scores are MRR, nDCG@10 and recall@10
    (`ablation.embeddings`), with queries as the sample. A head takes about half a pass over all
    texts, or over the queries alone.

    Args:
      pretrained: A model that says how it pools, as in `similarity`.
      queries, documents: The texts, in a list or by their names.
      relevant: The documents that answer each query, by their names or places from 0. Pairs of a
        query and a document, perhaps with a grade; or a mapping from each query to its documents or
        to their grades. Those of grade 0 or less are not relevant. None: the document at the same
        place answers a query, and further ones answer none.
      sides: Whether heads are disabled for 'both', or for 'queries' alone.
      prompts: The prompts of queries and of documents, as in `bs.embed`.
      masks, baseline, seed, compute: As in `similarity`.

    Raises:
      TypeError: The model is not a `Pretrained`.
      ValueError: A query has no relevant document, or is not among the queries; a document is not
        among the documents; there are fewer than two queries; or `similarity` would refuse the
        other arguments.
    """
    check_name('sides', sides, embeddings.SIDES_OF_SEARCH)
    judged, grades = judgements(queries, documents, relevant)
    asked, read = (
        list(each.values() if isinstance(each, Mapping) else each) for each in (queries, documents)
    )
    check_several(asked)
    chosen, outcomes = disabling.named_masks(masks, pretrained.config), {}
    how = {'sides': sides, 'baseline': baseline, 'donor_seed': seed, 'compute': compute}
    for name, each in chosen.items():
        ranks = embeddings.ranks_of_relevant(
            pretrained, asked, read, judged, with_intact(each), prompts=prompts, **how
        )
        names = [describe(mask) for mask in each]
        outcomes[name] = {
            score: embeddings.assess_retrieval(values, name=score, names=names, seed=seed)
            for score, values in embeddings.scores_of_queries(ranks, judged[:, 0], grades).items()
        }
    shape = next(iter(chosen.values())).shape[1:]
    found = Retrieval(baseline, sides, shape, outcomes, len(read))
    return found.with_frames(disabling.outcome_frames(outcomes))


def _listed(query: Any, documents: Any) -> Iterable[Any]:
    if isinstance(documents, str) or not isinstance(documents, Iterable):
        raise TypeError(
            f'The documents of query {query!r} are {documents!r}: give a list of them, or their '
            'grades by document.'
        )
    return documents


def judgements(
    queries: Texts, documents: Texts, relevant: Relevant | None
) -> tuple[Int[np.ndarray, 'P 2'], Float[np.ndarray, ' P']]:
    """Return the numbers [P, 2] of queries and their relevant documents, and the grades [P].

    Arguments and errors are those of `retrieval`.
    """
    # By their names, or else by their places.
    keys = (
        each if isinstance(each, Mapping) else range(len(each)) for each in (queries, documents)
    )
    known: list[dict[Any, int]] = [
        {name: place for place, name in enumerate(each)} for each in keys
    ]
    if relevant is None:
        rows = [(*pair, 1) for pair in zip(*known, strict=False)]
    elif isinstance(relevant, Mapping):
        rows = [
            (query, document, each[document] if isinstance(each, Mapping) else 1)
            for query, each in relevant.items()
            for document in _listed(query, each)
        ]
    else:
        rows = [(*each, 1)[:3] for each in relevant]
    graded = {}
    for *pair, grade in rows:
        for what, name, places in zip(('query', 'document'), pair, known, strict=True):
            if name not in places:
                raise ValueError(f'There is no {what} {name!r}: names are keys, or places from 0.')
        # Where a pair is given twice, its last grade counts.
        graded[known[0][pair[0]], known[1][pair[1]]] = float(grade)
    check_numbers('Grades', np.array([*graded.values()]))
    graded = {pair: grade for pair, grade in graded.items() if grade > 0}
    lacking = set(range(len(queries))) - {query for query, _ in graded}
    if lacking or not graded:
        raise ValueError(
            f'{len(lacking)} of {len(queries)} queries have no relevant document (the first is '
            f'number {min(lacking, default=0)}): leave them out.'
        )
    return np.array(list(graded)), np.array(list(graded.values()))
