"""Fine-tuning a pre-trained model on labelled texts: `finetune`."""

import collections
import dataclasses
import functools
import hashlib
import json
import math
import numbers
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh

from bert_secrets_jax import processes
from bert_secrets_jax.checks import check_different, check_enough, check_name
from bert_secrets_jax.compute import fetch
from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.data.questions import Question
from bert_secrets_jax.data.tagged import Tagged
from bert_secrets_jax.data.tasks import MOST_CLASSES, Example, as_examples, draw
from bert_secrets_jax.files import of_kind, read_record, write_record
from bert_secrets_jax.finetune import answers, outcome, tags
from bert_secrets_jax.finetune.config import FinetuneConfig, listed_seeds
from bert_secrets_jax.finetune.losses import NONE
from bert_secrets_jax.finetune.metrics import OF_ANSWERS, OF_TAGS, check_metrics, metrics_for
from bert_secrets_jax.finetune.outcome import OUTCOME, Finetuned
from bert_secrets_jax.finetune.seeds import train_runs
from bert_secrets_jax.finetune.steps import Data
from bert_secrets_jax.finetune.tags import check_tags, is_of_spans, names_of
from bert_secrets_jax.model.bert import init_params
from bert_secrets_jax.model.config import ANSWER, QUESTIONS, SEQUENCES, TOKENS, BertConfig
from bert_secrets_jax.model.weights import Pretrained, tokenizer_files, with_classifier

__all__ = ['Finetuned', 'finetune']

_INPUTS = 'inputs.json'
# Fine-tunings that were kept before a model had these settings are still found.
_CAME_LATER = frozenset(
    """relative_attention pos_att_type share_att_key position_buckets max_relative_positions
    norm_rel_ebd position_biased_input conv_kernel_size conv_groups conv_act rotary_value
    rotary_rounding num_key_value_heads use_task_id task_type_vocab_size""".split()
)


def finetune(
    pretrained: Pretrained,
    train: Sequence[Example] | Sequence[Tagged] | Sequence[Question],
    dev: Sequence[Example] | Sequence[Tagged] | Sequence[Question],
    *,
    start: str = 'pretrained',
    metrics: Sequence[str] | None = None,
    label_names: Sequence[str] | None = None,
    max_dev_examples: int = 0,
    folder: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    **settings: Any,
) -> Finetuned:
    """Fine-tune a model on labelled texts, once per seed, all seeds at the same time.

    The examples say what is learnt: classes or values of whole texts (`bs.Example`), the tags of
    words (`bs.Tagged`), or where in a text the answer to a question stands (`bs.Question`).

    With a folder, the fine-tuning can be interrupted at any time: the same call goes on from the
    last checkpoint and gives the same bits. Once it is finished, the same call reads its outcome.

    Args:
      pretrained: The model to start from. If it has a classifier, a fresh one replaces it.
      train: The examples to learn from. Labels are class ids, counted from 0, or values of a
        regression.
      dev: The examples that the model is evaluated on before training and after every epoch.
      start: 'pretrained' for the weights of the given model, 'random' for weights drawn anew
        (normal distribution; Table 1 of the paper has both).
      metrics: The names of the metrics of the dev examples, whose mean chooses the best epoch:
        'accuracy', 'f1' (of class 1), 'f1_macro', 'f1_micro' or 'matthews'; 'pearson' or
        'spearman'; of tags 'span_f1', 'word_accuracy' or 'f1_macro'; of answers 'exact_match' or
        'answer_f1'. None takes those of the task that dev examples are of (`bs.Example.metrics`).
        Without them, it takes 'f1' and 'accuracy' for two classes, 'accuracy' for more, both
        correlations for a regression, the accuracy of words and the F1 score of spans (or, where
        tags are not such as 'B-PER', macro F1), and both metrics of answers.
      label_names: The names of the classes. A single name means regression. None takes ('score',)
        if a training label is a float; otherwise those of the examples (`bs.Example.classes`),
        or 'LABEL_0', 'LABEL_1' and so on; for tags, those of the training texts. Answers take none.
      max_dev_examples: The greatest number of dev examples, drawn with the first seed; 0 takes all.
      folder: The folder of checkpoints, curves (`curve.csv`, `curve.jsonl`) and models in Hugging
        Face's layout (`seed0/last`, `seed0/best` and so on). None keeps the last models in memory.
      mesh: The devices, along an axis `data`, over which the seeds are spread or, where their
        number does not allow that, the micro-batches. None uses one device.
      **settings: Those of `bs.FinetuneConfig`, such as `seeds`, `epochs` or `learning_rate`.

    Raises:
      ValueError: A setting is out of range, a label is missing or does not fit the classes, or the
        folder holds a fine-tuning with other settings, texts or weights.
      TypeError: The model is not a `Pretrained`, the examples are something else, or there is no
        such setting.
      NonFiniteLossError: The loss is not finite. The error names the step, the learning rate and
        the examples.
    """
    config = FinetuneConfig(**settings)
    config.check_layers(pretrained.config)
    seeds = listed_seeds(config.seeds)
    check_name('start', start, ('pretrained', 'random'))
    head = _head_for(train, dev)
    train, dev, names, metrics = check_examples(train, dev, head, label_names, metrics)
    if not config.one_class:
        _check_varied(train, head, names)
    dev = draw(dev, max_dev_examples, seeds[0], setting='max_dev_examples')
    others = {'start': start, 'metrics': metrics, 'label_names': names}
    if head != SEQUENCES:
        others['head'] = head
    found = finished(folder, config, (pretrained, train, dev, start), **others)
    if found is not None:
        return found
    data, larger_class = encode_data(pretrained, train, dev, config, metrics, head, names)
    initial = [with_classifier(pretrained, names, head=head, seed=seed) for seed in seeds]
    return train_models(
        initial,
        data,
        config,
        names,
        start=start,
        larger_class=larger_class,
        folder=folder,
        mesh=mesh,
    )


def train_models(
    initial: Sequence[Pretrained],
    data: Data,
    config: FinetuneConfig,
    names: tuple[str, ...],
    *,
    start: str = 'pretrained',
    larger_class: float = math.nan,
    folder: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    **others: Any,
) -> Finetuned:
    """Train one model per seed from its initial weights; others are those of `train_runs`."""
    seeds, bert = listed_seeds(config.seeds), initial[0].bert
    weights = [model.params for model in initial]
    if start == 'random':
        weights = [init_params(bert, seed) for seed in seeds]
    in_memory, folder = {}, None if folder is None else pathlib.Path(folder)

    def save(seed: int, which: str, params: Any) -> None:
        # By way of the host: whatever devices it was trained on, it lies on the usual one.
        model = Pretrained(bert, fetch(params), initial[0].tokenizer)
        if folder is not None:
            to = outcome.checkpoint_folder(folder, seed, which)
            processes.on_first(lambda: outcome.save_model(model, to))
        elif which == 'last':
            params = jax.tree.map(jnp.asarray, model.params)
            in_memory[seed] = dataclasses.replace(model, params=params)

    history, moved = train_runs(bert, weights, data, config, folder, save=save, mesh=mesh, **others)
    finetuned = Finetuned(
        start=start,
        seeds=seeds,
        metrics=data.metrics,
        label_names=names,
        train_examples=len(data.train_labels),
        dev_examples=len(data.dev_labels),
        larger_class=larger_class,
        history=history,
        folder=folder,
        dtype=bert.config.dtype,
        head=data.head,
        movement=moved,
        in_memory=tuple(in_memory.values()),
    )
    if folder is not None:
        processes.on_first(lambda: outcome.write_outcome(finetuned))
    return finetuned


def finished(
    folder: str | os.PathLike[str] | None,
    config: FinetuneConfig,
    inputs: tuple[Pretrained, Sequence[Any], Sequence[Any], str],
    **others: Any,
) -> Finetuned | None:
    """Claim a folder for a fine-tuning of inputs (see `digests`), and return it if finished."""
    if folder is None:
        return None
    folder, of_inputs = pathlib.Path(folder), digests(*inputs)
    processes.on_first(lambda: claim(folder, config, of_inputs, **others))
    found = processes.on_first(lambda: _finished(folder))
    return (found or Finetuned.load(folder)) if processes.exists(folder / OUTCOME) else None


def _finished(folder: pathlib.Path) -> Finetuned | None:
    """Return a finished fine-tuning; what of it is damaged is removed, to be computed again."""
    fault = None
    if (folder / OUTCOME).exists():
        try:
            found = Finetuned.load(folder)
            outcome.mend_tables(found)
            return found
        except ValueError as error:
            fault = error
    for best in folder.glob('seed*/best'):
        # A model that was being written when the run was killed is going to be written again.
        if fault is None and not outcome.checksums_of(best).exists():
            continue
        try:
            outcome.check_model(best)
        except ValueError as error:
            logging.warning('Fine-tuning begins again: %s', error)
            # The best model was there in the middle: only the whole training gives it again.
            (folder / OUTCOME).unlink(missing_ok=True)
            shutil.rmtree(folder / 'checkpoints', ignore_errors=True)
            shutil.rmtree(best.parent)
            return None
    if fault is not None:
        logging.warning('Fine-tuning goes on from its last checkpoint: %s', fault)
        (folder / OUTCOME).unlink(missing_ok=True)
    return None


def remove_unknown(folder: pathlib.Path) -> None:
    """Remove a fine-tuning of which nobody can tell what it is, because its inputs are damaged."""
    try:
        read_record(folder / _INPUTS)
    except FileNotFoundError:
        return
    except ValueError as error:
        logging.warning('Fine-tuning begins again: %s', error)
        shutil.rmtree(folder)


def encode_data(
    pretrained: Pretrained,
    train: Sequence[Any],
    dev: Sequence[Any],
    config: FinetuneConfig,
    metrics: Sequence[str],
    head: str,
    names: tuple[str, ...],
) -> tuple[Data, float]:
    """Tokenise the examples and collect their labels; the share of the most frequent is second."""
    if head != SEQUENCES:
        texts = [[each.example for each in examples] for examples in (train, dev)]
    elif (train[0].text_b is None) == (dev[0].text_b is None):
        texts = [train, dev]
    else:
        raise ValueError(
            'Training examples and dev examples must both be single texts or both be pairs: '
            f'{train[0].id} and {dev[0].id} differ.'
        )
    max_length = config.max_length
    encoded = [tokenize(pretrained.tokenizer, each, max_length=max_length) for each in texts]
    given = list(zip(encoded, (train, dev), ('Training', 'Dev'), strict=True))
    batches = bucket(encoded[1], max_length=max_length)
    share, evaluate = math.nan, None
    if head == SEQUENCES:
        labels = [np.array([each.label for each in examples]) for examples in texts]
        if len(names) > 1:
            share = max(collections.Counter(labels[1].tolist()).values()) / len(dev)
    elif head == TOKENS:
        words = [tags.words_of(*each) for each in given]
        true = [tags.numbered(examples, names) for examples in (train, dev)]
        labels = list(map(tags.labels_of, words, true))
        longest = max(batch.input_ids.shape[1] for batch in batches)
        missing = longest - labels[1].shape[1]
        labels[1] = np.pad(labels[1], [(0, 0), (0, missing)], constant_values=NONE)
        counts = np.bincount(np.concatenate(true[1]))
        share = counts.max() / counts.sum()
        evaluate = functools.partial(tags.evaluate, words[1], true[1], names)
    else:
        labels = [answers.places_of(*each) for each in given]
        evaluate = functools.partial(answers.evaluate, encoded[1], dev)
    data = Data(
        train=encoded[0],
        train_labels=labels[0],
        train_ids=[each.id for each in train],
        dev=batches,
        dev_labels=labels[1],
        metrics=tuple(metrics),
        head=head,
        evaluate=evaluate,
    )
    return data, share


def _head_for(train: Sequence[Any], dev: Sequence[Any]) -> str:
    """Return the kind of head that learns from examples of this kind."""
    heads = {Tagged: TOKENS, Question: QUESTIONS}
    found = {
        heads.get(type(example), SEQUENCES)
        for examples in (train, dev)
        # Whatever is no list is refused by whoever reads it.
        if isinstance(examples, list | tuple)
        for example in examples
    }
    if len(found) > 1:
        raise TypeError(
            'Examples of several kinds are mixed: give texts with labels, bs.Tagged, or '
            'bs.Question, for training and dev alike.'
        )
    return found.pop() if found else SEQUENCES


def check_examples(
    train: Sequence[Any],
    dev: Sequence[Any],
    head: str,
    label_names: Sequence[str] | None,
    metrics: Sequence[str] | None,
) -> tuple[list, list, tuple[str, ...], tuple[str, ...]]:
    """Return the examples, the names of the classes and the metrics; refuse what does not fit."""
    usable = None
    read = cast(Callable[..., list[Any]], _labelled if head == SEQUENCES else _numbered)
    train, dev = read(train, 'Training'), read(dev, 'Dev')
    for examples, split in ((train, 'Training'), (dev, 'Dev')):
        check_enough(f'{split.lower()} examples', examples)
    if head == SEQUENCES:
        names = _names_from(train, dev) if label_names is None else _checked_names(label_names)
        _check_labels(train, len(names), 'Training')
        _check_labels(dev, len(names), 'Dev')
        default = metrics_for(len(names), dev)
    elif head == TOKENS:
        names = names_of(train) if label_names is None else _checked_names(label_names)
        check_enough('tags of words', names, 2, f', not {names} alone')
        check_tags(train, names, 'Training')
        check_tags(dev, names, 'Dev')
        usable = tuple(each for each in OF_TAGS if each != 'span_f1' or is_of_spans(names))
        default = usable[:2]
    else:
        if label_names is not None:
            raise ValueError(f'{label_names=}: answers to questions have no classes.')
        names, default, usable = ANSWER, OF_ANSWERS, OF_ANSWERS
    metrics = default if metrics is None else metrics
    check_metrics(metrics, len(names), usable=usable)
    return list(train), list(dev), names, tuple(metrics)


def _check_varied(train: Sequence[Any], head: str, names: tuple[str, ...]) -> None:
    """Refuse to learn labels that are all the same."""
    if head == QUESTIONS:
        return
    found = {each for one in train for each in (one.tags if head == TOKENS else [one.label])}
    if len(found) == 1:
        name = names[int(found.pop())] if head == SEQUENCES and len(names) > 1 else found.pop()
        raise ValueError(
            f'All training labels are {name!r}, so that nothing would be learnt: give examples of '
            'others, too. one_class=True (setting train.one_class) trains all the same.'
        )


def _numbered(examples: Sequence[Any], split: str) -> list[Any]:
    """Return examples that all have an id, for errors."""
    return [
        each if each.id else dataclasses.replace(each, id=f'{split.lower()}/{row}')
        for row, each in enumerate(examples or ())
    ]


def _labelled(texts: Sequence[Example], split: str) -> list[Example]:
    """Return examples that all have a number as label."""
    examples = as_examples(texts)
    for example in examples:
        label = example.label
        if label is None:
            raise ValueError(
                f'{split} example {example.place} has no label: give bs.Example(text_a, text_b, '
                'label), or leave it out.'
            )
        if not isinstance(label, numbers.Real) or not math.isfinite(label):
            raise ValueError(
                f'{split} example {example.place} has the label {label!r}: labels are class ids, '
                'counted from 0, or finite values of a regression.'
            )
    return examples


def _names_from(train: Sequence[Example], dev: Sequence[Example]) -> tuple[str, ...]:
    """Return the names of classes that the examples have, or that their numbers give."""
    labels = [int(each.label) for each in train if isinstance(each.label, numbers.Integral)]
    if len(labels) < len(train):
        return ('score',)
    named = {tuple(each.classes): each.place for each in (*dev, *train) if each.classes}
    if len(named) > 1:
        found = ' and '.join(f'{", ".join(names)} ({place})' for names, place in named.items())
        raise ValueError(
            f'The classes of examples are named differently: {found}. Read all with the same '
            'labels=(...), or give label_names.'
        )
    if named:
        return _checked_names(next(iter(named)))
    classes = max(*labels, 1) + 1
    _check_labels(train, min(classes, MOST_CLASSES), 'Training')
    without = sorted(set(range(max(labels))) - set(labels))
    if without:
        logging.warning(
            'No training example is of the class %s: classes are counted from 0.',
            ', '.join(map(str, without)),
        )
    return tuple(f'LABEL_{index}' for index in range(classes))


def _checked_names(label_names: Sequence[str]) -> tuple[str, ...]:
    check_enough('label_names', label_names)
    check_different('label_names', label_names, 'each is one class')
    return tuple(label_names)


def _check_labels(examples: Sequence[Example], classes: int, split: str) -> None:
    """Refuse labels that are none of the classes; 1 class means regression, where all may be."""
    if classes == 1:
        return
    for example in examples:
        if example.label not in range(classes):
            raise ValueError(
                f'{split} example {example.place} has the label {example.label!r}, and the classes '
                f'are 0 to {classes - 1}: correct it, or give the names of all classes as '
                "label_names, in the programs as data.labels=('-1', '1') for one. Values of a "
                'regression are told by a point, as in -1.0.'
            )


def claim(
    folder: pathlib.Path, config: FinetuneConfig, digests: dict[str, str], **others: Any
) -> None:
    """Note in the folder what it is for; raise ValueError if it is for something else."""
    file = folder / _INPUTS
    settings = dataclasses.asdict(config) | others
    # How often checkpoints are written changes no result.
    del settings['checkpoint_every']
    # NumPy's numbers become plain ones.
    wanted = json.loads(json.dumps({'settings': settings, 'digests': digests}, default=float))
    mend = 'choose another folder, or delete this one.'
    if not file.exists():
        if any((folder / name).exists() for name in (OUTCOME, 'checkpoints')):
            raise ValueError(f'{folder} holds a fine-tuning of another version: {mend}')
        write_record(file, wanted)
        return
    try:
        found = read_record(file)
        for name in wanted:
            of_kind(found.get(name), dict, f'{file}: {name}: ')
    except ValueError as error:
        raise ValueError(f'{error} Nobody can tell what {folder} is for: {mend}') from error
    # A folder of a former version has none of the settings that are newer.
    former = {each.name: each.default for each in dataclasses.fields(config)} | found['settings']
    wrong = [
        f'{name}={former.get(name)!r}, not {value!r}'
        for name, value in wanted['settings'].items()
        if former.get(name) != value
    ] + [
        f'another {name}' for name, value in digests.items() if found['digests'].get(name) != value
    ]
    if wrong:
        raise ValueError(f'{folder} holds a fine-tuning with {"; ".join(wrong)}: {mend}')


def _described(config: BertConfig) -> str:
    """Return the settings of a model, without those that came later and are at their defaults."""
    each = {field: getattr(config, field.name) for field in dataclasses.fields(config)}
    shown = (
        f'{field.name}={value!r}'
        for field, value in each.items()
        if field.name not in _CAME_LATER or value != field.default
    )
    return f'BertConfig({", ".join(shown)})'


def digests(
    pretrained: Pretrained, train: Sequence[Any], dev: Sequence[Any], start: str
) -> dict[str, str]:
    """Return digests of texts and model, which is 'tuned' if its classifier counts."""
    model = hashlib.sha256()
    config, params = pretrained.config, pretrained.params
    if start != 'tuned':
        # The classifier is fresh, so one that is there has no part in the results.
        config = dataclasses.replace(
            config,
            head=SEQUENCES,
            label_names=('any',),
            multi_label=False,
            tie_word_embeddings=True,
            add_pooler=True,
        )
        params = {name: part for name, part in params.items() if name != 'classifier'}
    model.update(_described(config).encode())
    if start != 'random':
        for path, leaf in jax.tree_util.tree_leaves_with_path(params):
            model.update(jax.tree_util.keystr(path).encode())
            model.update(np.ascontiguousarray(leaf).data)
    return {
        'model': model.hexdigest(),
        'tokenizer': _digest(_splitting(pretrained.tokenizer)),
        'list of training examples': _digest(_content(train)),
        'list of dev examples': _digest(_content(dev)),
    }


def _splitting(tokenizer: Any) -> dict[str, Any]:
    """Return the settings of a tokenizer; ValueError if it cannot be written, or read again."""
    try:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
    # The library, which is not written in Python, raises nothing more particular.
    except Exception:
        # RoFormer's has a function of Python, which it leaves out where it writes itself.
        with tempfile.TemporaryDirectory() as folder:
            files = map(pathlib.Path, tokenizer_files(tokenizer, folder))
            return {file.name: file.read_text() for file in files}
    # Settings that the last call has left in it.
    for name in ('truncation', 'padding'):
        settings.pop(name, None)
    return settings


def _content(examples: Sequence[Any]) -> list[tuple]:
    """Return what a model sees of examples, and not where they come from."""
    content = {
        Example: lambda each: (each.text_a, each.text_b, float(each.label)),
        Tagged: lambda each: (each.words, each.tags),
        Question: lambda each: (each.question, each.context, each.answers),
    }
    return [content[type(example)](example) for example in examples]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
