"""Relevance of heads: beside NumPy with every contribution written out, conserved in every step."""

import dataclasses
import functools
import operator

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.measure import relevance as module
from bert_secrets_jax.measure.relevance import PUBLISHED, Rule, head_relevance, linear
from tests.conftest import PAIRS, RELATIVES, relative
from tests.contributions.reference import ACTS, Reference, Summands, random_model


def distributed(contributions, relevance, rule):
    """Return what inputs [I] receive of outputs [O] with relevance, by contributions [I, O]."""
    positive, negative = np.maximum(contributions, 0), np.minimum(contributions, 0)
    shares = rule.alpha * positive / (positive.sum(axis=0) + rule.epsilon)
    shares += (1 - rule.alpha) * negative / (negative.sum(axis=0) - rule.epsilon)
    given = shares.sum(axis=0)
    return (shares / np.where(given, given, 1)) @ relevance


class Walk(Reference):
    """The walk down a model, in float64, of one example without padding, token by token."""

    def __init__(self, model, rule, output, example, length):
        super().__init__(model, output, example, length)
        self.rule = rule

    def relevance(self):
        """The relevance of all heads [L, N]."""
        layers = range(self.config.num_hidden_layers)
        found = np.zeros((len(layers), self.config.num_attention_heads))
        runs = [self.run_layer(layer) for layer in layers]
        relevance = self.of_encoder(runs[-1]['left'])
        for layer in reversed(layers):
            relevance, found[layer] = self.through(layer, runs[layer], relevance)
        return found

    # Forward.

    def run_layer(self, number):
        """The states within a layer, by their names."""
        weights, norm_first = self.layer(number), self.config.family.norm_first
        found = {'entered': Summands(self.states[number][None].copy())}
        found['read'] = self.read(number, found['entered'])
        found['values'] = found['read'].dense(weights['attention']['value'])
        found['turned'] = Summands(self.turned(found['values'].parts))
        contexts = np.einsum('nts,psnh->ptnh', self.maps[number], found['turned'].parts)
        found['contexts'] = Summands(contexts)
        found['attended'] = found['contexts'].dense(weights['attention']['output'], 2)
        found['residual'] = found['entered'] + found['attended']
        first = weights['output_norm' if norm_first else 'attention_norm']
        found['fed from'] = self.norm(found['residual'], first)
        found['wide'] = self.wide(weights, found['fed from'])
        found['fed'] = found['wide'].dense(weights['output'])
        found['second'] = found['fed from'] + found['fed']
        found['left'] = (
            found['residual'] + found['fed']
            if norm_first
            else self.norm(found['second'], weights['output_norm'])
        )
        return {name: each.whole for name, each in found.items()}

    def normed(self, weights, x):
        return self.norm(Summands(x[None].copy()), weights).whole

    def deviation(self, x):
        mean = 0 if self.config.family.rms_norm else x.mean(axis=-1, keepdims=True)
        squares = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
        return np.sqrt(squares + self.config.layer_norm_eps)

    # Backward.

    def through(self, number, run, relevance):
        weights = self.layer(number)
        if self.config.family.norm_first:
            residual, fed = self.of_sum(run['residual'], run['fed'], relevance)
            fed = self.of_feed_forward(weights, run, fed)
            residual += self.of_norm(weights['output_norm'], run['residual'], fed)
        else:
            second = self.of_norm(weights['output_norm'], run['second'], relevance)
            first, fed = self.of_sum(run['fed from'], run['fed'], second)
            first += self.of_feed_forward(weights, run, fed)
            residual = self.of_norm(weights['attention_norm'], run['residual'], first)
        entered, attended = self.of_sum(run['entered'], run['attended'], residual)
        contexts = self.of_dense(weights['attention']['output'], run['contexts'], attended)
        values = np.zeros_like(run['values'])
        for query, head, place in np.ndindex(contexts.shape):
            each = self.maps[number, head, query] * run['turned'][:, head, place]
            values[:, head, place] += distributed(
                each[:, None], contexts[query, head, place, None], self.rule
            )
        if self.config.rotary_value:
            units = np.broadcast_to(np.eye(values.shape[2]), (len(values), *[values.shape[2]] * 2))
            turns = self.turned(units)
            for token, head in np.ndindex(values.shape[:2]):
                each = run['values'][token, head, :, None] * turns[token]
                values[token, head] = distributed(each, values[token, head], self.rule)
        read = self.of_dense(weights['attention']['value'], run['read'], values)
        if self.config.family.norm_first and self.config.layer_kinds[number].normed:
            read = self.of_norm(weights['attention_norm'], run['entered'], read)
        return entered + read, contexts.sum(axis=(0, 2))

    def of_encoder(self, hidden):
        """The relevance of the output of the last layer."""
        config, params = self.config, self.params
        tokens = hidden
        if config.family.norm_first:
            tokens = self.normed(params['final_norm'], hidden)
        mean = config.classifier_pooling == 'mean'
        token = tokens.mean(axis=0) if mean else tokens[0]
        act = ACTS[config.family.pooler_act or config.hidden_act]
        active = act(token @ params['pooler']['kernel'] + bias(params['pooler']))
        pooled = active
        if config.family.pooler_norm:
            pooled = self.normed(params['pooler_norm'], active[None])[0]
        logits = pooled @ params['classifier']['kernel'] + bias(params['classifier'])
        top = np.eye(len(logits))[logits.argmax()]
        relevance = self.of_dense(params['classifier'], pooled[None], top[None])
        if config.family.pooler_norm:
            relevance = self.of_norm(params['pooler_norm'], active[None], relevance)
        relevance = self.of_dense(params['pooler'], token[None], relevance)[0]
        found = np.zeros_like(tokens)
        if mean:
            for place, amount in enumerate(relevance):
                each = tokens[:, place, None] / self.length
                found[:, place] = distributed(each, amount[None], self.rule)
        else:
            found[0] = relevance
        if config.family.norm_first:
            found = self.of_norm(params['final_norm'], hidden, found)
        return found

    def of_feed_forward(self, weights, run, relevance):
        wide = self.of_dense(weights['output'], run['wide'], relevance)
        layer = weights['intermediate']
        if self.config.family.gated:
            layer = {'kernel': layer['kernel'][:, 1]}
        return self.of_dense(layer, run['fed from'], wide)

    def of_dense(self, layer, inputs, relevance):
        rows = [
            distributed(
                x.reshape(-1, 1) * layer['kernel'].reshape(x.size, -1), each.ravel(), self.rule
            )
            for x, each in zip(inputs, relevance, strict=True)
        ]
        return np.stack(rows).reshape(inputs.shape)

    def of_norm(self, weights, inputs, relevance):
        width = inputs.shape[-1]
        mean = 0 if self.config.family.rms_norm else 1 / width
        kernel = (np.eye(width) - mean) * weights['scale']
        return self.of_dense({'kernel': kernel}, inputs / self.deviation(inputs), relevance)

    def of_sum(self, first, second, relevance):
        found = np.zeros((2, *first.shape))
        for place in np.ndindex(first.shape):
            each = np.array([[first[place]], [second[place]]])
            found[:, *place] = distributed(each, relevance[place][None], self.rule)
        return found


def bias(layer):
    return layer.get('bias', 0)


@pytest.fixture(scope='module', params=RELATIVES)
def model(request, config, tokenizer):
    return random_model(relative(config, request.param), tokenizer)


@pytest.fixture(scope='module')
def plain(config, tokenizer):
    return random_model(config, tokenizer)


def batches_of(tokenizer, **options):
    return encode(tokenizer, PAIRS, **({'max_length': 24, 'buckets': ()} | options))


def run(model, batch):
    return jax.jit(model.bert.apply)({'params': model.params}, **batch.inputs)


@pytest.mark.parametrize('model_type', ['bert', 'modernbert', 'eurobert', 'roformer'])
@pytest.mark.parametrize(
    ('scale', 'rule'), [(0.02, PUBLISHED), (0.3, PUBLISHED), (0.3, Rule(alpha=0.9, epsilon=1e-2))]
)
def test_relevance_is_that_of_contributions_written_out(config, tokenizer, scale, model_type, rule):
    mine = relative(config, model_type)
    if model_type == 'modernbert':
        mine = dataclasses.replace(mine, classifier_pooling='mean', label_names=('value',))
    model = random_model(mine, tokenizer, scale=scale)
    (batch,) = batches_of(tokenizer)
    output = run(model, batch)
    found = head_relevance(model, [batch], rule=rule, keep_values=True)
    for row, example in enumerate(batch.example):
        if example >= 0:
            reference = Walk(model, rule, output, row, int(batch.lengths[row]))
            np.testing.assert_allclose(found.values[example], reference.relevance(), rtol=2e-5)
    np.testing.assert_allclose(found.mean, found.values.mean(axis=0), rtol=1e-5)
    assert found.count == len(PAIRS) and found.mean.std() > 1e-4


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    arrays.arrays(np.float32, (2, 5), elements=st.floats(-4, 4, width=16)),
    arrays.arrays(np.float32, (5, 3), elements=st.floats(-4, 4, width=16)),
    st.floats(0.05, 0.95),
)
def test_a_linear_step_hands_on_all_it_has(inputs, weights, alpha):
    rule = Rule(alpha=alpha)
    relevance = np.array([[1, 0.5, 2], [0, 3, 1]], np.float32)
    outputs, back = jax.vjp(
        functools.partial(linear, rule, 'BI,IO->BO'), jnp.asarray(inputs), jnp.asarray(weights)
    )
    np.testing.assert_allclose(outputs, inputs @ weights, rtol=1e-5, atol=1e-5)
    received, of_weights = back(jnp.asarray(relevance))
    assert not of_weights.any() and (received >= 0).all()
    contributions = inputs[:, :, None] * weights[None]
    expected = np.where((contributions != 0).any(axis=1), relevance, 0)
    np.testing.assert_allclose(received.sum(axis=1), expected.sum(axis=1), rtol=1e-4)
    for row in range(2):
        np.testing.assert_allclose(
            received[row], distributed(contributions[row].astype(np.float64), relevance[row], rule),
            rtol=1e-3, atol=1e-5,
        )  # fmt: skip


def test_the_steps_written_again_are_the_model(model):
    (batch,) = batches_of(model.tokenizer)
    output = run(model, batch)
    config, mask = model.config, batch.attention_mask
    real = np.asarray(mask, bool)
    for number, kind in enumerate(config.layer_kinds):
        params = jax.tree.map(operator.itemgetter(number), model.params['layers'])
        hidden, contexts, maps = (
            each[:, number] for each in (output.hidden_states, output.contexts, output.attentions)
        )
        how = {'maps': maps, 'normed': jnp.array(kind.normed)}
        found = module.contexts_of(config, PUBLISHED, params, hidden, **how)
        np.testing.assert_allclose(found[real], contexts[real], atol=2e-5)
        left = module.after_attention(config, PUBLISHED, params, hidden, contexts)
        if number < config.num_hidden_layers - 1:
            np.testing.assert_allclose(
                left[real], output.hidden_states[:, number + 1][real], atol=2e-5
            )
    logits = module.classified(config, PUBLISHED, model.params, left, mask)
    np.testing.assert_allclose(logits, output.logits, atol=2e-5)


@pytest.mark.parametrize('model_type', ['bert', 'modernbert'])
def test_each_token_starts_an_equal_share(config, tokenizer, model_type):
    mine = relative(config, model_type)
    pools = mine.family.pools_tokens
    mine = dataclasses.replace(mine, head='token_classification', add_pooler=pools)
    model = random_model(mine, tokenizer)
    (batch,) = batches_of(tokenizer)
    mask = batch.attention_mask
    last = jnp.asarray(run(model, batch).hidden_states[:, -1])
    logits, back = jax.vjp(
        lambda hidden: module.classified(mine, PUBLISHED, model.params, hidden, mask), last
    )
    (found,) = back(module._start(mine, logits, mask))
    shares = np.asarray(mask) / np.maximum(np.asarray(mask).sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(found.sum(axis=-1), shares, rtol=1e-4, atol=1e-7)
    values = head_relevance(model, [batch], keep_values=True).values
    assert (values > 0).all() and (values.sum(axis=-1) < 0.95).all()


def test_removed_heads_have_no_relevance(plain):
    batches = batches_of(plain.tokenizer)
    mask = np.ones((3, 4), np.float32)
    mask[0, 1] = mask[2, 3] = 0
    whole = head_relevance(plain, batches, head_mask=np.ones((3, 4), int)).mean
    np.testing.assert_array_equal(whole, head_relevance(plain, batches).mean)
    left = head_relevance(plain, batches, head_mask=mask).mean
    np.testing.assert_array_equal(left == 0, mask == 0)
    assert (np.abs(left - whole)[1] > 1e-5).all()


def test_what_is_refused(config, tokenizer, untyped):
    batches = batches_of(tokenizer)
    for head, names in (('masked_lm', ()), ('question_answering', ('start', 'end'))):
        mine = dataclasses.replace(config, head=head, label_names=names, add_pooler=False)
        with pytest.raises(ValueError, match='classifies texts or tokens'):
            head_relevance(random_model(mine, tokenizer), batches)
    mine = dataclasses.replace(config, label_names=())
    with pytest.raises(ValueError, match=r'none \(bert, 3 layers, 4 heads, width 24\)'):
        head_relevance(random_model(mine, tokenizer), batches)
    for alpha in (0, 1, 2, float('nan')):
        with pytest.raises(ValueError, match='alpha=.* must lie between 0 and 1'):
            Rule(alpha=alpha)
    with pytest.raises(ValueError, match='epsilon=0 must be greater than 0'):
        Rule(epsilon=0)
