"""What devices say to one another in a training step, read from the compiled program, loops counted."""

import functools
import importlib.util

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from models.flops import pretraining_flops, xlnet_flops
from tests.training import families
from tools import compiled, hlo, topology
from training import sharding
from training.programs import shapes_of

PRIME = 11  # rows of a device, and of nothing else: an axis of activations is a multiple, one of parameters is not
FEW = 1024  # bytes: sums for the log, weights, norms

tpu = pytest.mark.skipif(
  importlib.util.find_spec("libtpu") is None, reason="no libtpu (pip install -r requirements-compile.txt)"
)
PLACES = [pytest.param("cpu:8"), pytest.param("v3:2x2", marks=[tpu, pytest.mark.slow])]


@functools.cache
def step(family: str, place: str, data: int, fsdp: int, tensor: int, accumulate: int, slices: int = 1):
  """(program, bytes of a device's trained parameters, those that "fsdp" splits, what compilers said) of a step."""
  rows = PRIME * data * fsdp * accumulate
  objective, batch = families.build(family, rows)
  devices = topology.describe(place, slices).devices[: data * fsdp * tensor]
  mesh = sharding.make_mesh(sharding.MeshConfig(data // slices, fsdp, tensor), devices)
  steps = families.lower(objective, rows, mesh, accumulate)
  jax.config.update("jax_enable_compilation_cache", False)  # a program that comes from there has no warnings
  compilation_cache.reset_cache()
  with compiled.errors_of_the_compiler() as said:
    text = steps.train(shapes_of(batch, rows)).compile().as_text()
  jax.config.update("jax_enable_compilation_cache", True)
  compilation_cache.reset_cache()
  params = jax.tree.leaves(objective.moving(steps.state.params))
  size = lambda x: 4 * np.prod(x.sharding.shard_shape(x.shape))
  split = sum(size(x) for x in params if "fsdp" in str(x.sharding.spec))
  return hlo.read(text), int(sum(map(size, params))), int(split), [line for line in said if "rematerial" in line]


def sent(program: hlo.Program, *kinds: str) -> int:
  """Bytes of these kinds in a step, but for a few at a time."""
  return int(sum(one.bytes * one.times for one in program.collectives() if one.kind in kinds and one.bytes > FEW))


def shapes(program: hlo.Program) -> list[tuple[int, ...]]:
  return [array.shape for one in program.collectives() for array in one.arrays]


def is_of_rows(shape: tuple[int, ...]) -> bool:
  return any(size % PRIME == 0 for size in shape)


# ALBERT's layers share one copy, which is added up once and not once a layer.
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("family", "accumulate"), [("bert", 2), ("albert", 2), ("xlnet", 1), ("bilstm", 1)])
def test_copies_add_up_their_gradients_once_a_step(family, accumulate, place):
  program, parameters, _, said = step(family, place, 4, 1, 1, accumulate)
  assert {one.kind for one in program.collectives()} == {"all-reduce"}
  assert sent(program, "all-reduce") == pytest.approx(parameters, abs=FEW)
  assert sum(one.bytes * one.times for one in program.collectives()) == pytest.approx(parameters, abs=4 * FEW)
  assert not said, said


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_split_parameters_are_gathered_and_activations_are_never_sent(family, place):
  """Each is gathered for the forward pass and at most once again for the backward pass, on a TPU as bfloat16; sums of
  gradients go to whoever holds the part, or to all."""
  program, _, split, said = step(family, place, 2, 2, 1, 1)
  assert not said, said
  assert not [shape for shape in shapes(program) if is_of_rows(shape)]
  whole = 2 * split
  assert whole / 2 <= sent(program, "all-gather") <= 2 * whole * 1.1
  assert sent(program, "all-to-all", "collective-permute") == 0


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_split_layers_add_up_their_outputs_and_send_no_other_activations(family, place):
  """Two sums of hidden vectors a layer on the way forward (Megatron-LM, section 3), and on the way back one before the
  feed-forward layer and one each before queries, keys and values. A TPU may leave each device a part of a sum, and
  gather it where it is used."""
  program, _, _, said = step(family, place, 1, 1, 2, 1)
  assert not said, said
  of_rows = [one for one in program.collectives() if one.bytes > FEW and any(is_of_rows(x.shape) for x in one.arrays)]
  if place.startswith("cpu"):
    assert {one.kind for one in of_rows} == {"all-reduce"}
  else:
    assert {one.kind for one in of_rows} <= {"all-reduce", "reduce-scatter", "all-gather", "collective-permute"}
  hidden = PRIME * (families.LENGTH + (16 if family == "xlnet" else 0)) * 64 * 4  # keys, with memory
  total = sum(one.bytes * one.times for one in of_rows)
  assert (2 if family == "xlnet" else 4) * 2 * hidden <= total <= 6.5 * 2 * hidden * (1 if place == "cpu:8" else 2)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_layers_that_are_split_both_ways_send_activations_along_tensor_alone(family, place):
  program, _, _, said = step(family, place, 1, 2, 2, 1)
  assert not said, said
  of_rows = [one for one in program.collectives() if one.bytes > FEW and any(is_of_rows(x.shape) for x in one.arrays)]
  assert {one.devices for one in of_rows} == {2}
  if place.startswith("cpu"):
    assert {one.kind for one in of_rows} == {"all-reduce"}


@tpu
@pytest.mark.slow
def test_of_the_sum_of_gradients_a_chip_sends_its_own_part_to_the_other_slice():
  """A fourth of it; a row of 64 numbers is sent as one of 128."""
  program, parameters, _, said = step("bert", "v5e:2x2", 8, 1, 1, 1, slices=2)
  assert not said, said
  between = [one for one in program.collectives() if one.between == "slices" and one.bytes > FEW]
  assert {(one.kind, one.devices) for one in between} == {("all-reduce", 2)}
  assert parameters / 4 <= sum(one.bytes * one.times for one in between) <= 2 * parameters / 4


@pytest.mark.parametrize("place", PLACES)
def test_products_are_the_models_count(place):
  """Each device does its share, whatever is split; but the pooler and the head's dense layer are not along "tensor"."""
  for (data, fsdp, tensor), accumulate in (((4, 1, 1), 2), ((2, 2, 1), 1), ((1, 1, 2), 1), ((1, 2, 2), 1)):
    program, *_ = step("bert", place, data, fsdp, tensor, accumulate)
    rows = PRIME * data * fsdp * accumulate
    expected = 3 * pretraining_flops(families.config("bert"), rows, families.LENGTH, 4) / (data * fsdp * tensor)
    assert program.matrix_flops() == pytest.approx(expected, rel=0.001 if tensor == 1 else 0.02)
  program, *_ = step("xlnet", place, 4, 1, 1, 1)
  expected = 3 * xlnet_flops(families.config("xlnet"), PRIME * 4, families.LENGTH, 4) / 4
  assert program.matrix_flops() == pytest.approx(expected, rel=0.03)


@pytest.mark.slow
def test_products_of_a_denoising_step_with_pairs_are_the_models_count():
  program, *_ = step("dae", "cpu:8", 4, 1, 1, 1)
  expected = 3 * xlnet_flops(families.config("dae"), PRIME * 4, families.LENGTH, 4, query=False, pair=True) / 4
  assert program.matrix_flops() == pytest.approx(expected, rel=0.03)


def test_rows_are_told_from_parameters():
  """Else nothing above could fail."""
  objective, _ = families.build("xlnet", PRIME)
  mesh = families.mesh(2, 2, 2)
  state = families.lower(objective, 4 * PRIME, mesh).state
  assert not [x.shape for x in jax.tree.leaves(state.params) if is_of_rows(x.shape)]
  assert sharding.row_parts(mesh) == 4
