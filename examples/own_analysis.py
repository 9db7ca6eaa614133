"""An analysis of your own: a result with a table, a finding and a file."""

import bert_secrets_jax as bs


class Backward(bs.Result):
    """How much each head attends to the previous token."""

    title = 'Looking back'

    table: bs.HeadTable

    def findings(self):
        layers = self.table.mean.mean(axis=1)
        said = 'Layer {layer} looks back most: {estimate:.2f} of its attention.'
        found = {'estimate': float(layers.max()), 'numbers': {'layer': int(layers.argmax()) + 1}}
        found |= {'name': 'most', 'unit': 'share', 'source': 'this example'}
        return [bs.Finding(template=said, **found)]


def main(name: str = 'all-MiniLM-L6-v2', texts: int = 40, file: str = 'backward.npz') -> None:
    pretrained = bs.from_pretrained(name)
    batches = bs.encode(pretrained.tokenizer, bs.read_corpus('dev')[:texts])
    tables = bs.collect(pretrained, batches, ['previous token'])
    found = Backward(tables['previous token']).with_frames({'heads': bs.to_frame(tables)})
    print(found)
    found.save(file)
    print(Backward.load(file).frames()['heads'].head())


if __name__ == '__main__':
    main()
