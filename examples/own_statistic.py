"""A statistic of your own: how much do heads attend to the longest wordpiece before them?"""

import jax.numpy as jnp

import bert_secrets_jax as bs


def to_earlier(attentions, marks):
    """Return the attention to earlier tokens [layer, head], and the weight of this example."""
    length = attentions.shape[-1]
    earlier = jnp.tril(jnp.ones((length, length)), k=-1)
    real = marks['token']
    total = jnp.einsum('LNTS,TS,T->LN', attentions, earlier, real.astype(jnp.float32))
    return total / real.sum(), jnp.ones(())


def main(name: str = 'all-MiniLM-L6-v2', texts: int = 40) -> None:
    pretrained = bs.from_pretrained(name)
    batches = bs.encode(pretrained.tokenizer, bs.read_corpus('dev')[:texts])
    tables = bs.collect(pretrained, batches, {'earlier tokens': to_earlier})
    print(bs.top_heads(tables['earlier tokens'], 3))
    print(bs.to_frame(tables).head())


if __name__ == '__main__':
    main()
