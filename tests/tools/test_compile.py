"""Compiling a run for devices that are described: on this host's, and what is said where that cannot be."""

import dataclasses
import importlib.util
import json
import re
import sys

import pytest

import parts
from tests import runs, tasks
from tools import compile as tool
from tools import compiled, pods, topology
from training.programs import shapes_of

TINY = [
  "--config=configs/bert.py:tiny",
  "--config.model.vocab_size=100",
  "--config.model.hidden_size=32",
  "--config.model.intermediate_size=64",
  "--config.batch_size=8",
  "--config.stages=()",
  "--config.length=32",
]


def test_what_is_compiled_without_text_is_what_a_run_compiles(prepared_corpus):
  config = runs.config(prepared_corpus, model__vocab_size=200)
  planned, built = parts.plan(config), parts.build(config)
  (stage,) = built.stages
  assert planned.stages == [stage]
  assert planned.shapes(stage) == built.shapes(stage)
  batches = built.train_batches(stage, 0, range)
  assert [shapes_of(next(batches), stage.batch_size)] == planned.shapes(stage)[0]
  batches.close()
  assert planned.flops(8, 32) == built.flops(8, 32)


def test_a_task_is_compiled_for_the_devices_that_are_described(monkeypatch, tmp_path):
  """Its batches are filled up to a multiple of theirs, not of this host's."""
  config = tasks.config(tasks.write(tmp_path, "classification"), "classification", batch_size=6)
  for count, tensor in ((8, 1), (4, 2), (3, 1)):
    config.mesh.tensor = tensor
    on = topology.Topology("described", topology.describe("cpu:8").devices[:count], None, None)
    plan = tool.planned(config, on)
    (stage,) = plan.stages
    for shapes in plan.shapes(stage)[0]:
      assert shapes["sequence_ids"].shape[0] % (count // tensor) == 0
      assert shapes["sequence_ids"].shape[0] < 6 + 2 * count


def test_a_run_is_compiled_and_measured(capsys, monkeypatch):
  monkeypatch.setattr(sys, "argv", ["compile", *TINY, "--topology=cpu:4", "--json"])
  tool.main()
  found = json.loads(capsys.readouterr().out)
  assert found["fits"] is found["hbm_bytes"] is None
  kinds = found["bytes_per_device"]
  assert kinds["optimizer"] == pytest.approx(2 * kinds["parameters"], abs=8)
  assert kinds["batch"] == 2 * (3 * 32 + 1) * 4  # two rows: three arrays of tokens and a label, int32
  assert kinds["total"] > kinds["parameters"] + kinds["optimizer"] + kinds["temporaries"]
  assert found["flops_per_device"] == pytest.approx(found["model_flops_per_device"], rel=1e-6)
  (sent,) = (one for one in found["collectives"] if one["bytes"] > 1024)
  assert (sent["kind"], sent["devices"]) == ("all-reduce", 4)
  assert sent["bytes"] == pytest.approx(kinds["parameters"], abs=200)
  assert found["mesh"] == {"data": 4, "fsdp": 1, "tensor": 1}


REPORT = compiled.Report(
  step="train",
  stage=0,
  batch_size=64,
  length=128,
  devices=8,
  mesh={"data": 8, "fsdp": 1, "tensor": 1},
  fits=False,
  bytes_per_device={"parameters": 3 * 2**30, "optimizer": 6 * 2**30, "memory": 0, "batch": 0, "total": 20 * 2**30},
  hbm_bytes=16 * 2**30,
  flops_per_device=None,
  model_flops_per_device=1e12,
  kernels=0,
  collectives=[],
  resharding_warnings=[],
  seconds_at_peak=None,
  compile_s=1.0,
)


def test_what_to_change_is_said_where_a_step_does_not_fit():
  config = tool.read_config(TINY)
  said = compiled.advice(REPORT, config)
  assert "mesh.fsdp=2 (parameters and optimizer take 9.0 GiB)" in said
  assert "model.remat=dots" in said
  assert "accumulate=2" in said
  assert "125%, it does not fit" in compiled.table(REPORT)
  config.model.remat, small = "full", dataclasses.replace(REPORT, batch_size=8)
  said = compiled.advice(small, config)
  assert "remat" not in said
  assert "accumulate" not in said
  assert "mesh.tensor=2" in said


def test_what_to_change_is_only_what_can_help():
  config = tool.read_config(TINY)
  sized = lambda total: REPORT.bytes_per_device | {"total": total * 2**30}
  assert "accumulate=8" in compiled.advice(dataclasses.replace(REPORT, bytes_per_device=sized(45)), config)  # 36 / 7
  assert "accumulate" not in compiled.advice(dataclasses.replace(REPORT, bytes_per_device=sized(200)), config)
  said = compiled.advice(dataclasses.replace(REPORT, step="eval"), config)
  assert not {"remat", "accumulate"} & set(said.replace(".", " ").replace("=", " ").split())
  config.model.remat, mesh = "full", {"data": 4, "fsdp": 1, "tensor": 2}
  last = dataclasses.replace(REPORT, batch_size=4, mesh=mesh, bytes_per_device=sized(20) | {"optimizer": 0})
  assert compiled.advice(last, config) == "it does not fit; try devices with more memory"
  task = tool.read_config(["--config=configs/finetune/bert.py:sst2", "--config.init_from=c", "--config.data.source=s"])
  assert "mesh.tensor=4" in compiled.advice(last, task)  # its heads are known to the checkpoint alone


@pytest.mark.parametrize("most", [1, 5, 24, 100])
def test_the_largest_batch_is_found_in_few_compilations(monkeypatch, most):
  """Of a step that takes 4 and a bit GiB, and as much for each row as leaves room for `most`."""
  tried = []

  def compile_stage(config, index, topology, which):
    rows = config.batch_size // 8
    tried.append(rows)
    total = int((4 + 12 * rows / (most + 0.5)) * 2**30)
    kinds = REPORT.bytes_per_device | {"total": total}
    return dataclasses.replace(REPORT, batch_size=8 * rows, fits=rows <= most, bytes_per_device=kinds)

  monkeypatch.setattr(tool, "compile_stage", compile_stage)
  on = topology.Topology("cpu:8", topology.describe("cpu:8").devices, 16 * 2**30, 1e12)
  config = tool.with_batch(tool.read_config(TINY), 0, 64)
  first = compile_stage(config, 0, on, "train")
  assert tool.largest_batch(config, 0, on, "train", first) == 8 * most
  assert len(tried) <= 6


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--topology=v9:2x2"], "--topology=v9:2x2 is none: name a generation and chips along its axes, e.g. v3:8x8"),
    (["--topology=cpu:2x2"], "devices on this host are a number"),
    (["--topology=cpu:64"], "this process has 8 devices"),
    (["--topology=cpu:8", "--slices=2"], "one slice"),
    (["--topology=cpu:8", "--config.mesh.tensor=4"], "config.mesh.tensor=4 does not divide config.model.num_heads=2"),
    (["--topology=cpu:8", "--config.batch_size=4"], "batch_size=4 is not divisible by 8 devices"),
    (["--topology=cpu:8", "--config.mesh.fsdp=3"], "mesh.fsdp=3 × mesh.tensor=1 does not make 8 devices"),
    (["--topology=cpu:8", "--config.model.vocab_size=0"], "config.model.vocab_size=0 leaves the size to a corpus"),
    (["--topology=cpu:8", "--stage=1"], "--stage=1: the run has 1 stages"),
    (["--topology=cpu:8", "--stage=-2"], "--stage=-2: the run has 1 stages"),
    (["--topology=cpu:0"], "devices on this host are a number"),
    (["--topology=cpu:8", "--config.model.heads=1"], "unknown field"),
  ],
)
def test_a_mistake_ends_in_one_line(monkeypatch, arguments, said):
  monkeypatch.setattr(sys, "argv", ["compile", *TINY, *arguments])
  with pytest.raises(ValueError, match=re.escape(said)) as raised:
    tool.main()
  assert len(str(raised.value).splitlines()) == 1


def test_without_libtpu_it_says_how_to_get_it(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"needs libtpu, .* pip install -r requirements-compile.txt$"):
    topology.describe("v3:8x8")


def test_what_a_compiler_asks_for_is_read_from_what_it_says():
  gib = 2**30
  said = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 17.50G of "
  assert compiled.demanded(said + "15.48G hbm. Exceeded hbm capacity by 2.02G.", 15 * gib) == 17.5 * gib
  said = (
    "Ran out of memory on HBM, the total memory required for HLO temporaries (65.00G) exceeds available HBM (15.75G)"
  )
  assert compiled.demanded(said, 15 * gib) == 65 * gib
  said = (
    "Total hbm usage >= 16.01G:\n reserved 16.50M\n ... Total hbm usage >= 16.0...; Used 1..."  # repeats itself, cut
  )
  assert compiled.demanded(said, 15 * gib) == int(16.01 * gib)
  assert compiled.demanded("RESOURCE_EXHAUSTED", 15 * gib) > 15 * gib


def test_every_row_of_the_table_is_a_run_that_divides(monkeypatch):
  """Compiling takes hours; what can be told without is."""
  for row in pods.ROWS:
    fields = [x for x in row.arguments if x.startswith("--config")]
    generation, shape = next(x for x in row.arguments if x.startswith("--topology=")).split("=")[1].split(":")
    x, y = map(int, shape.split("x"))
    chips = x * y * (2 if "--slices=2" in row.arguments else 1)
    devices = chips * (2 if generation == "v3" else 1)
    config = tool.read_config(fields)
    assert config.batch_size % (devices * config.accumulate) == 0
    assert int(row.machine.split()[0].replace(",", "")) == chips
