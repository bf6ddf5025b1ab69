"""Programs are compiled for declared shapes and dtypes alone."""

import jax
import numpy as np
import pytest

from tests.training import toy
from training import optimizer, programs, sharding, state
from training.optimizer import OptimizerConfig
from training.programs import ByShape, shapes_of
from training.schedule import ScheduleConfig


def batch(rows: int, length: int = 3) -> dict[str, np.ndarray]:
  return {
    "x": np.ones((rows, toy.WIDTH), np.float32),
    "y": np.ones(rows, np.float32),
    "sequence_ids": np.ones((rows, length), np.int32),
  }


def test_a_program_is_compiled_once_for_each_shape_and_chosen_by_it():
  compiled = []

  def compile(shapes):
    compiled.append(shapes["x"].shape)
    number = len(compiled)
    return lambda other, given: (other, number)

  call = ByShape(compile, [shapes_of(batch(n), n) for n in (2, 4, 2)], batch_at=1)
  assert compiled == [(2, toy.WIDTH), (4, toy.WIDTH)]
  assert [call("other", batch(n)) for n in (4, 2, 4)] == [("other", 2), ("other", 1), ("other", 2)]
  assert len(compiled) == 2


@pytest.mark.parametrize(
  "other",
  [
    batch(3),
    batch(2, length=4),
    {"x": batch(2)["x"]},
    batch(2) | {"more": np.ones(2, np.float32)},
    batch(2) | {"y": np.ones(2, np.int32)},
    batch(2) | {"y": np.ones(2, np.float16)},
  ],
)
def test_any_other_shape_or_dtype_is_an_error(other):
  call = ByShape(lambda shapes: lambda given: None, [shapes_of(batch(2), 2)], batch_at=0)
  with pytest.raises(ValueError, match=r"a batch of undeclared shapes: .*\bx float32\[\d, 4\]"):
    call(other)


def test_two_dtypes_of_one_shape_are_two_programs():
  whole = batch(2) | {"y": np.ones(2, np.int32)}
  call = ByShape(
    lambda shapes: lambda given: shapes["y"].dtype, [shapes_of(batch(2), 2), shapes_of(whole, 2)], batch_at=0
  )
  assert [call(whole), call(batch(2))] == [np.int32, np.float32]


def test_a_stage_trains_and_evaluates_on_declared_shapes_and_never_compiles_another():
  mesh = sharding.make_mesh(sharding.MeshConfig(), jax.devices()[:1])
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(0.1, 0)), steps=4)
  declared = [shapes_of(batch(2), 2)]
  compiled = programs.compile_stage(toy.objective(), tx, declared, 2, mesh, seed=0, accumulate=1)
  now = state.create(toy.objective(), tx, 2, 0, mesh)
  now, values = compiled.train(now, sharding.put_batch(batch(2), mesh))
  assert np.isfinite(values["loss"])
  for call in (lambda b: compiled.train(now, b), lambda b: compiled.eval(now.params, now.carry, b, np.int32(0))):
    with pytest.raises(ValueError, match="a batch of undeclared shapes"):
      call(sharding.put_batch(batch(4), mesh))
  assert len(compiled.train.programs) == len(compiled.eval.programs) == 1
