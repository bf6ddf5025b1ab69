"""An XLNet that was trained with next-sentence prediction: what goes out, what comes in, what goes on."""

import dataclasses
import json

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.tasks import parameter_shapes as task_shapes
from pretrained import export
from pretrained.load import Pretrained, load
from pretrained.shapes import parameter_shapes
from pretrained.transfer import fill
from tests.pretrained.heads import FIXTURES, head


@pytest.fixture(scope="module")
def with_pair() -> Pretrained:
  one = load(FIXTURES / "xlnet")
  shapes = parameter_shapes(one.config, pair=True)
  given = flax.traverse_util.flatten_dict(one.params, sep="/")
  assert {name.split("/")[0] for name in shapes.keys() - given.keys()} == {"pooler", "pair_head"}
  values = {name: given.get(name, np.full(shape, 0.5, np.float32)) for name, shape in shapes.items()}
  return dataclasses.replace(one, params=flax.traverse_util.unflatten_dict(values, sep="/"))


def test_hugging_faces_layout_leaves_it_out_and_says_so(with_pair, tmp_path, capsys):
  written = export.write(with_pair, tmp_path / "pair", "hf")
  assert written.params.keys() == {"xlnet", "lm_head"}
  said = "Hugging Face has no pooler and pair_head of such a model: left out; --to=bidir keeps them\n"
  assert capsys.readouterr().err == said
  export.write(load(FIXTURES / "xlnet"), tmp_path / "plain", "hf")
  assert capsys.readouterr().err == ""
  for file in (tmp_path / "plain").iterdir():
    assert file.read_bytes() == (tmp_path / "pair" / file.name).read_bytes(), file.name


def test_our_layout_keeps_it(with_pair, tmp_path):
  export.write(with_pair, tmp_path / "a", "bidir")
  found = load(tmp_path / "a")
  jax.tree.map(np.testing.assert_array_equal, found.params, with_pair.params)
  assert not found.missing
  assert load(tmp_path / "a", heads=False).params.keys() == {"xlnet"}


def test_a_run_of_its_is_read_whole(with_pair, tmp_path):
  """config.json of a run says no modules, but what it was trained on."""
  export.write(with_pair, tmp_path, "bidir")
  file = tmp_path / "config.json"
  written = json.loads(file.read_text())
  del written["modules"]
  file.write_text(json.dumps(written | {"objective": {"pair": "nsp"}}))
  found = load(tmp_path)
  jax.tree.map(np.testing.assert_array_equal, found.params, with_pair.params)


def fresh(shapes) -> dict:
  return flax.traverse_util.unflatten_dict({name: jnp.full(shape, -1.0) for name, shape in shapes.items()}, sep="/")


def test_a_task_starts_from_it(with_pair, capsys):
  filled = fill(fresh(task_shapes(with_pair.config, head("classification"))), with_pair)
  np.testing.assert_array_equal(filled["xlnet"]["mask_embedding"], with_pair.params["xlnet"]["mask_embedding"])
  assert (filled["summary"]["projection"]["kernel"] == -1).all()
  said = capsys.readouterr().err
  for name in ("pair_head", "pooler"):
    assert f"the checkpoint's {name} is not used: this run's model has none" in said


def test_pretraining_goes_on_with_it_and_without(with_pair, capsys):
  filled = fill(fresh(parameter_shapes(with_pair.config, pair=True)), with_pair)
  assert (filled["pair_head"]["kernel"] == 0.5).all()
  assert capsys.readouterr().err == ""
  filled = fill(fresh(parameter_shapes(with_pair.config, pair=True)), load(FIXTURES / "xlnet"))
  assert (filled["pair_head"]["kernel"] == -1).all()
  assert "pair_head begins anew: the checkpoint has none" in capsys.readouterr().err
