"""The inputs that sections need: each function names the one that a study lacks, or returns ''."""

from collections.abc import Callable, Sequence

from bert_secrets_jax.analyses.subnetworks import has_own_layers
from bert_secrets_jax.data.corpus import similarity_sample
from bert_secrets_jax.data.encoding import knows_words
from bert_secrets_jax.data.framenet import framenet_sample
from bert_secrets_jax.data.language import language_of
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.data.treebank import treebank_sample
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.programs.study import Study
from bert_secrets_jax.pruning.outliers import ends_with_norm


def words(study: Study) -> str:
    if study.has_words:
        return ''
    language = study.foreign_to(language_of(study.config.linguistics.pipeline))
    of = f' for {language}, or data.language if that is wrong' * bool(language)
    return f'a spaCy pipeline (setting linguistics.pipeline){of}, or data.source=treebank'


def english(study: Study) -> str:
    """The embedded sentences are English, and say nothing of a model of something else."""
    if study.foreign and not study.config.frames.sample:
        return f'sentences in {study.foreign} (setting frames.sample), for the embedded are English'
    if study.config.frames.sample or _knows(study, 'frames', lambda: framenet_sample()[0]):
        return ''
    return 'sentences that the tokenizer knows (setting frames.sample), or model.allow_unknown'


def trees(study: Study) -> str:
    def sample() -> list[Example]:
        return [parse.example for parse in treebank_sample('dev')]

    treebank = study.config.treebank
    if bool(treebank.train) != bool(treebank.dev):
        return 'both parts of a treebank (settings treebank.train and treebank.dev)'
    if study.foreign and not treebank.dev:
        return f'a treebank in {study.foreign} (settings treebank.train and treebank.dev)'
    if treebank.dev or _knows(study, 'treebank', sample):
        return ''
    return (
        'a treebank that the tokenizer knows (settings treebank.train and treebank.dev), or '
        'model.allow_unknown'
    )


def _knows(study: Study, name: str, read: Callable[[], Sequence[Example]]) -> bool:

    def find() -> bool:
        return knows_words(study.pretrained.tokenizer, [each.text_a for each in read()])

    return study.holds(f'knows the words of the {name}', find, unknown=True)


def training(study: Study) -> str:
    if study.has_training:
        return ''
    return (
        'a fine-tuned model: give labelled texts to train on (settings data.train_file and '
        'data.label)'
    )


def classifier(study: Study) -> str:
    data = study.config.data
    if data.source in ('tags', 'questions'):
        return 'one label of each text (settings data.source=file and data.label)'
    if study.config.ablation.checkpoint != 'model':
        return training(study)
    if data.source in ('file', 'segments', 'treebank') and data.label is None:
        return 'labels: name their column (setting data.label)'
    return ''


def _own_training(study: Study) -> str:
    if study.config.ablation.checkpoint == 'model':
        return 'models that this run fine-tunes (setting ablation.checkpoint=finetuned)'
    return ''


def seeds(study: Study) -> str:
    missing = _own_training(study) or classifier(study)
    if missing or len(study.ablated_seeds) > 1:
        return missing
    return 'several fine-tuned models (settings train.num_seeds and ablation.seeds)'


def both(study: Study) -> str:
    return classifier(study) or training(study)


def own_layers(study: Study) -> str:
    if missing := _own_training(study) or both(study):
        return missing
    own = _fits(study, 'uses layers once', has_own_layers)
    return '' if own else 'a model that uses each of its layers once'


def masked_lm(study: Study) -> str:
    def find() -> bool:
        return study.with_own_head.config.head == MASKED_LM

    is_one = study.holds('predicts wordpieces', find, unknown=False)
    return '' if is_one else 'a model with the head of a masked LM'


def embedding(study: Study) -> str:
    def find() -> bool:
        pooling = study.pretrained.config.pooling
        return pooling is not None and not pooling.refused

    if study.holds('says how it pools', find, unknown=False):
        return ''
    return 'a model that says how it pools, such as a folder of sentence-transformers'


def pairs(study: Study) -> str:
    return embedding(study) or ('' if study.has_pairs else embedded_pairs(study))


def embedded_pairs(study: Study) -> str:
    """They are English, and say nothing of a model of something else."""
    if missing := embedding(study):
        return missing
    if study.foreign:
        return f'pairs of texts in {study.foreign}, for the embedded are English'
    if _knows(study, 'pairs', similarity_sample):
        return ''
    return 'pairs of texts that the tokenizer knows, or model.allow_unknown'


def retrieval(study: Study) -> str:
    return embedding(study) if study.config.retrieval.files else embedded_pairs(study)


def patching(study: Study) -> str:
    missing = classifier(study)
    if not missing or (study.config.ablation.checkpoint != 'model' and not embedding(study)):
        return ''
    return f'{missing}, or a model that says how it pools'


def minimal_pairs(study: Study) -> str:
    """The embedded ones are English; without an anchor, an embedding prefers no text."""
    own = study.config.minimal_pairs
    if own.file and own.anchor:
        return embedding(study)
    missing = classifier(study) if own.label else masked_lm(study)
    if missing and not own.label:
        missing += ', or a classifier and the class of good texts (setting minimal_pairs.label)'
    if missing or own.file:
        return missing
    if not study.foreign and _knows(study, 'minimal pairs', lambda: study.good_texts):
        return ''
    return 'minimal pairs that suit texts and tokenizer (setting minimal_pairs.file)'


def output_norm(study: Study) -> str:
    if _fits(study, 'ends with LayerNorm', ends_with_norm):
        return ''
    return 'a model whose layers end with LayerNorm, such as BERT or RoBERTa'


def _fits(study: Study, name: str, rule: Callable[[BertConfig], bool]) -> bool:
    return study.holds(name, lambda: rule(study.pretrained.config), unknown=True)
