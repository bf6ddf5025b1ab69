"""Files from someone else: shards, names that lead out of the folder, links, pickles."""

import json
import pathlib
import pickle
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pretrained import files
from pretrained.load import load

FIXTURE = pathlib.Path(__file__).parent.parent / "fixtures" / "bert"


@pytest.fixture
def folder(tmp_path):
  return pathlib.Path(shutil.copytree(FIXTURE, tmp_path / "bert"))


def shard(folder, rename=lambda name: name, drop=()):
  """Splits the weights over two files and an index."""
  tensors = load_file(folder / "model.safetensors")
  (folder / "model.safetensors").unlink()
  where = {}
  for part in range(2):
    name = f"model-0000{part + 1}-of-00002.safetensors"
    held = dict(sorted(tensors.items())[part::2])
    save_file({n: x for n, x in held.items() if n not in drop}, folder / name)
    where |= dict.fromkeys(held, rename(name))
  (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def test_shards(folder):
  shard(folder)
  jax.tree.map(np.testing.assert_array_equal, load(folder).params, load(FIXTURE).params)
  (folder / "model-00002-of-00002.safetensors").unlink()
  with pytest.raises(FileNotFoundError, match=r"model-00002-of-00002\.safetensors: no such file, and .* names it"):
    load(folder)


def test_a_shard_without_its_tensor(folder):
  shard(folder, drop=("bert.pooler.dense.bias",))
  with pytest.raises(ValueError, match=r"index\.json: bert\.pooler\.dense\.bias is not in model-0000"):
    load(folder)


def test_an_index_that_is_none(folder):
  shard(folder)
  for text in ("{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3, "b": "x"}}'):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match="no index of weights"):
      load(folder)


@pytest.mark.parametrize("lead", ["../", "../bert/", "{folder}/", "sub/", "..\\"])
def test_a_name_that_leads_out_is_refused(folder, lead):
  shard(folder, rename=lambda name: lead.format(folder=folder) + name)
  with pytest.raises(ValueError, match="is no file of this folder; nothing outside it is read"):
    load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_a_link_that_leads_out_is_refused(folder, tmp_path, name):
  shutil.move(folder / name, tmp_path / name)
  (folder / name).symlink_to(tmp_path / name)
  with pytest.raises(ValueError, match="outside the folder; nothing outside it is read"):
    load(folder)


def test_a_download_is_a_folder_of_links(folder, tmp_path):
  """huggingface_hub keeps the files in blobs/, and links in snapshots/REVISION; the folder itself may be a link."""
  blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "abc"
  snapshot.mkdir(parents=True)
  shutil.move(folder, blobs)
  for file in blobs.iterdir():
    (snapshot / file.name).symlink_to(pathlib.Path("..", "..", "blobs", file.name))
  (tmp_path / "here").symlink_to(snapshot)
  for path in (snapshot, tmp_path / "here"):
    assert load(path).config == load(FIXTURE).config


class Mischief:
  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return pathlib.Path.touch, (self.path,)


def test_a_pickle_is_not_read_without_pytorch(folder, tmp_path, monkeypatch):
  (folder / "model.safetensors").unlink()
  (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Mischief(tmp_path / "done")))
  monkeypatch.setattr(files, "_torch", lambda: None)
  with pytest.raises(ValueError, match=r"PyTorch 2\.6 or newer, which is not installed; pip install torch, or") as e:
    load(folder)
  assert "\n" not in str(e.value)
  assert not (tmp_path / "done").exists()


def test_a_safe_file_is_read_before_a_pickle(folder):
  (folder / "pytorch_model.bin").write_bytes(b"never opened")
  assert load(folder).missing == ()
