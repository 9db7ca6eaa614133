"""pytorch_model.bin: read without PyTorch, and nothing that the file says is ever run."""

import collections
import io
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import pytest

from bert_secrets_jax.model import torch_bin

torch = pytest.importorskip('torch')


@pytest.fixture(params=[True, False], ids=['zip', 'legacy'])
def new_format(request):
    return request.param


def save(tensors, path, new_format):
    torch.save(tensors, path, _use_new_zipfile_serialization=new_format)


def test_equals_torch_load(tmp_path, new_format):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = collections.OrderedDict(
        plain=torch.randn(3, 5),
        transposed=base.T,
        view=base[1:3, ::2],  # shares the storage of `transposed`
        parameter=torch.nn.Parameter(torch.randn(4)),
        scalar=torch.tensor(3.0),
        empty=torch.zeros(0, 4),
        half=torch.randn(5).half(),
        bfloat=torch.randn(5).bfloat16(),
        integers=torch.arange(7),
        flags=torch.tensor([True, False]),
    )
    path = tmp_path / 'pytorch_model.bin'
    save(tensors, path, new_format)
    loaded = torch_bin.load(path)
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        expected = tensor.detach()
        assert loaded[name].shape == tuple(expected.shape), name
        np.testing.assert_array_equal(
            loaded[name].astype(np.float64), expected.double().numpy(), err_msg=name
        )


class Payload:
    """A pickle of this creates a file when it is loaded by an ordinary unpickler."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def hostile_zip(path, data: bytes):
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('archive/data.pkl', data)
        archive.writestr('archive/version', '3')


def test_a_hostile_pickle_is_refused_by_name_and_does_not_run(tmp_path, new_format):
    marker, path = tmp_path / 'owned', tmp_path / 'pytorch_model.bin'
    data = pickle.dumps({'bert.pooler.dense.bias': Payload(marker)}, protocol=2)
    if new_format:
        hostile_zip(path, data)
    else:
        path.write_bytes(data)
    with pytest.raises(ValueError, match=rf'pytorch_model.bin was not loaded.*{os.name}.mkdir'):
        torch_bin.load(path)
    assert not marker.exists()
    pickle.loads(data)  # the payload does run where it is allowed to
    assert marker.exists()


@pytest.mark.parametrize(
    'name',
    [
        'builtins.eval',
        'builtins.getattr',
        'os.system',
        'torch.load',
        'subprocess.Popen',
    ],
)
def test_no_other_name_is_known(tmp_path, name):
    module, attribute = name.rsplit('.', 1)
    path = tmp_path / 'pytorch_model.bin'
    hostile_zip(path, f'c{module}\n{attribute}\n.'.encode())
    with pytest.raises(ValueError, match=f'asks for {name}'):
        torch_bin.load(path)


def test_the_known_functions_cannot_be_changed(tmp_path):
    """BUILD sets attributes; here it tries to give our stand-in other defaults."""
    path = tmp_path / 'pytorch_model.bin'
    state = pickle.dumps((None, {'__defaults__': (1,)}), protocol=2)[2:-1]
    hostile_zip(path, b'\x80\x02ctorch._utils\n_rebuild_tensor_v2\n' + state + b'b.')
    with pytest.raises(ValueError, match="tries to set '__defaults__'"):
        torch_bin.load(path)


def test_a_dtype_cannot_be_changed(tmp_path):
    """BUILD on a dtype would call its __setstate__, and all of the process shares it."""
    before = np.dtype(ml_dtypes.bfloat16).itemsize
    path = tmp_path / 'pytorch_model.bin'
    state = pickle.dumps((3, '|', None, None, None, 1024, 1, 0), protocol=2)[2:-1]
    hostile_zip(path, b'\x80\x02ctorch\nBFloat16Storage\n' + state + b'b0}.')
    with pytest.raises(ValueError, match='was not loaded'):
        torch_bin.load(path)
    assert np.dtype(ml_dtypes.bfloat16).itemsize == before == 2


@pytest.mark.parametrize(
    ('offset', 'shape', 'strides'),
    [
        (0, (1000,), (1,)),
        (3, (2,), (1,)),
        (0, (2,), (-1,)),
        (-1, (1,), (1,)),
        (0, (2, 2), (1,)),
    ],
)
def test_a_tensor_beyond_its_data_is_refused(tmp_path, offset, shape, strides):
    class Tensor:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (
                Storage(), offset, shape, strides, False, collections.OrderedDict(),
            )  # fmt: skip

    class Storage:
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            if isinstance(value, Storage):
                return ('storage', torch.FloatStorage, '0', 'cpu', 4)

    data = io.BytesIO()
    Pickler(data, protocol=2).dump({'weight': Tensor()})
    path = tmp_path / 'pytorch_model.bin'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('archive/data.pkl', data.getvalue())
        archive.writestr('archive/data/0', np.zeros(4, np.float32).tobytes())
    with pytest.raises(
        ValueError, match='weight (reaches beyond its data|has an impossible shape)'
    ):
        torch_bin.load(path)


def test_a_file_cut_off_and_a_file_of_something_else(tmp_path, new_format):
    path = tmp_path / 'pytorch_model.bin'
    save({'weight': torch.randn(100)}, path, new_format)
    whole = path.read_bytes()
    for data in (whole[: len(whole) // 2], b'', b'hello', pickle.dumps([1, 2])):
        path.write_bytes(data)
        with pytest.raises(ValueError, match='was not loaded'):
            torch_bin.load(path)
    save({'epoch': 3, 'weight': torch.randn(3)}, path, new_format)
    with pytest.raises(ValueError, match='does not hold a state dict'):
        torch_bin.load(path)


def test_from_pretrained_reads_it(tmp_path, bert, params, tokenizer):
    import jax

    from bert_secrets_jax.model import weights

    model = weights.Pretrained(bert, params, tokenizer)
    weights.save_pretrained(model, tmp_path)
    tensors = weights.tensors_from_params(bert.config, params)
    (tmp_path / 'model.safetensors').unlink()
    torch.save({k: torch.tensor(v) for k, v in tensors.items()}, tmp_path / 'pytorch_model.bin')
    jax.tree.map(np.testing.assert_array_equal, weights.from_pretrained(tmp_path).params, params)
