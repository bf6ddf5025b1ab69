"""What the objective carries from step to step, in checkpoints: exact, in the newest alone, or not at all."""

import types

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import SingleDeviceSharding
from ml_collections import ConfigDict

from tests.training.toy_runs import run, series
from training import checkpoint
from training.checkpoint import Checkpoints, saved_steps
from training.state import TrainState


def holders(workdir) -> list[int]:
  """The checkpoints that hold a carry."""
  return sorted(int(path.parent.name) for path in workdir.glob("checkpoints/*/carry"))


def state(step: int, memory: int) -> TrainState:
  carry = {"memory": jnp.full((2, memory), float(step), jnp.bfloat16), "document_ids": jnp.full((2, memory), step)}
  return TrainState(jnp.int32(step), {"w": jnp.ones(3)}, (), carry)


def abstract(step: int, memory: int) -> TrainState:
  place = SingleDeviceSharding(jax.devices()[0])
  return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), state(step, memory))


def save_some(folder, carry="exact") -> Checkpoints:
  checkpoints = Checkpoints(str(folder), keep_last=3, keep_best=0, carry=carry)
  for step in (1, 2, 3):
    checkpoints.save(state(step, memory=4), None)
  checkpoints.wait()
  return checkpoints


def test_the_newest_checkpoint_alone_holds_the_carry(tmp_path, capsys):
  checkpoints = save_some(tmp_path)
  assert saved_steps(str(tmp_path)) == [1, 2, 3]
  assert holders(tmp_path) == [3]
  restored = checkpoints.restore(lambda step: abstract(step, memory=4))
  checkpoints.close()
  assert restored.carry["memory"].dtype == jnp.bfloat16
  assert (restored.carry["memory"] == 3).all()
  assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("saved", "wanted", "said"), [("exact", 6, "another shape"), ("zero", 4, "holds no memory")])
def test_a_carry_that_cannot_be_used_is_zeros_and_said_in_one_line(tmp_path, capsys, saved, wanted, said):
  checkpoints = save_some(tmp_path, saved)
  restored = checkpoints.restore(lambda step: abstract(step, wanted))
  checkpoints.close()
  assert int(restored.step) == 3
  assert restored.carry["memory"].shape == (2, wanted)
  assert not restored.carry["memory"].any()
  lines = capsys.readouterr().err.splitlines()
  assert len(lines) == 1
  assert lines[0].startswith("checkpoint 3 holds ")
  assert said in lines[0]


@pytest.mark.parametrize("file", ["_METADATA", "d"])
def test_a_damaged_carry_costs_no_weights(tmp_path, capsys, file):
  """`d` holds the numbers, as one of several files may."""
  checkpoints = save_some(tmp_path)
  damaged = [path for path in (tmp_path / "checkpoints" / "3" / "carry").rglob("*") if path.is_file()]
  for path in damaged:
    if file == "d" or path.name == file:
      path.write_bytes(b"damaged")
  restored = checkpoints.restore(lambda step: abstract(step, memory=4))
  checkpoints.close()
  assert int(restored.step) == 3
  assert not restored.carry["memory"].any()
  assert not (tmp_path / "damaged").exists()
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("checkpoint 3 holds a damaged memory (")


def test_a_run_without_memory_says_that_it_drops_one(tmp_path, capsys):
  checkpoints = save_some(tmp_path)
  restored = checkpoints.restore(lambda step: abstract(step, memory=4).replace(carry={}))
  checkpoints.close()
  assert restored.carry == {}
  assert capsys.readouterr().err.startswith("checkpoint 3 holds a memory, and this run has none")


def test_room_is_asked_for_what_is_saved_alone(tmp_path, monkeypatch):
  monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: types.SimpleNamespace(free=40e6))
  big = state(1, memory=4).replace(carry={"memory": jnp.zeros((2, 4_000_000))})
  kept = Checkpoints(str(tmp_path / "zero"), 1, 0, carry="zero")
  kept.save(big, None)
  kept.close()
  exact = Checkpoints(str(tmp_path / "exact"), 1, 0)
  with pytest.raises(OSError, match="no room in"):
    exact.save(big, None)
  exact.close()


def test_a_run_without_its_carry_goes_on_and_says_that_it_is_not_exact(tmp_path, capsys):
  fields = {"checkpoint_memory": "zero", "stages": (), "optimizer.decay": "constant"}
  run(tmp_path, steps=5, **fields)
  assert holders(tmp_path) == []
  said = capsys.readouterr()
  assert "config.checkpoint_memory=zero" in said.out
  run(tmp_path, steps=10, **fields)
  assert "holds no memory" in capsys.readouterr().err
  seen = [r["seen"] for r in series(tmp_path) if r["split"] == "train"]
  assert seen == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


def test_an_unknown_way_of_saving_it_is_an_error(tmp_path):
  with pytest.raises(ValueError, match=r"config.checkpoint_memory='some' is unknown; use one of exact, zero"):
    Checkpoints(str(tmp_path), 1, 0, carry="some")


def test_a_stage_begins_with_a_fresh_carry_though_its_rows_are_as_many(tmp_path):
  """Its rows continue none of the stage before, so what is carried says nothing of them."""
  stages = tuple(ConfigDict({"steps": steps, "batch_size": 8}) for steps in (3, 4))
  seen = [r["seen"] for r in run(tmp_path, steps=7, stages=stages) if r["split"] == "train"]
  assert seen == [1, 2, 3, 1, 2, 3, 4]
  resumed = tmp_path / "resumed"  # at the very border
  fields = {"stages": stages, "optimizer.decay": "constant"}
  run(resumed, steps=3, **fields)
  assert [r["seen"] for r in run(resumed, steps=7, **fields) if r["split"] == "train"] == [1, 2, 3, 1, 2, 3, 4]
