"""The spine, proved with the toy: whatever interrupts, splits or places a run, its numbers stay."""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from tests.processes import run_together
from tests.training import toy
from tests.training.toy_runs import ENV, command, newest, run, series
from training import checkpoint, metrics, settings


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """The workdir of an uninterrupted run."""
  workdir = tmp_path_factory.mktemp("whole")
  run(workdir)
  return workdir


def close(a: list[dict], b: list[dict], **tolerance) -> None:
  assert [(r["step"], r["split"]) for r in a] == [(r["step"], r["split"]) for r in b]
  for x, y in zip(a, b, strict=True):
    np.testing.assert_allclose([x["loss"], x["seen"]], [y["loss"], y["seen"]], err_msg=str(x["step"]), **tolerance)


def test_every_step_is_recorded_and_the_carry_counts(whole):
  records = [r for r in series(whole) if r["split"] == "train"]
  assert [r["step"] for r in records] == list(range(1, 21))
  assert [r["seen"] for r in records] == [*range(1, 13), *range(1, 9)]  # a new batch size starts a new carry


def test_evaluation_has_its_own_carry_and_never_changes_its_draws(whole, tmp_path):
  records = [r for r in series(whole) if r["split"] == "eval"]
  assert [r["step"] for r in records] == [0, 10, 20]
  assert {r["seen"] for r in records} == {1.5}  # two batches: seen once, then twice
  frozen = {"optimizer.learning_rate": 0.0, "stages": (), "steps": 12}
  losses = [r["loss"] for r in run(tmp_path, **frozen) if r["split"] == "eval"]
  assert len(losses) == 3
  assert len(set(losses)) == 1


def test_starting_over_drops_the_old_log(whole, tmp_path):
  workdir = shutil.copytree(whole, tmp_path / "again")
  shutil.rmtree(workdir / "checkpoints")
  assert run(workdir) == series(whole)


def test_resuming_at_a_checkpoint_continues_bit_for_bit(whole, tmp_path):
  for steps in (5, 13, 20):  # in the first stage, in the second, to the end
    run(tmp_path, steps=steps, **{"optimizer.decay": "constant"})
  assert series(tmp_path)[-1]["step"] == 20
  straight = run(tmp_path / "straight", **{"optimizer.decay": "constant"})
  interrupted = {(r["step"], r["split"]): r for r in series(tmp_path)}
  for record in straight:
    assert interrupted[record["step"], record["split"]] == record


def test_killed_at_any_moment_the_series_is_that_of_an_uninterrupted_run(tmp_path):
  straight, killed = tmp_path / "straight", tmp_path / "killed"
  fields = ("--config.steps=400", "--config.stages=()", "--config.checkpoint_every=7", "--config.eval_every=50")
  subprocess.run(command(straight, *fields), env=ENV, check=True, capture_output=True)
  moments = np.random.default_rng(0).uniform(0.0, 1.5, size=3)
  kills = 0
  for moment in moments:
    with open(tmp_path / "log", "w") as log:
      process = subprocess.Popen(command(killed, *fields), env=ENV, stdout=log, stderr=log)
      before = newest(killed)
      while newest(killed) in (None, before) and process.poll() is None:
        time.sleep(0.05)
      time.sleep(moment)
      process.send_signal(signal.SIGKILL)
      kills += process.wait() == -signal.SIGKILL
  with open(killed / "metrics.jsonl", "a") as file:
    file.write('{"step": 399, "lo')  # a torn record
  subprocess.run(command(killed, *fields), env=ENV, check=True, capture_output=True)
  assert kills > 0
  assert series(killed) == series(straight)


def test_sigterm_saves_and_exits_0_and_the_run_goes_on(tmp_path):
  fields = (
    "--config.steps=100000",
    "--config.stages=()",
    "--config.checkpoint_every=100000",
    "--config.eval_every=100000",
  )
  with open(tmp_path / "log", "w") as log:
    process = subprocess.Popen(command(tmp_path, *fields), env=ENV, stdout=log, stderr=log)
    while not (tmp_path / "metrics.jsonl").exists() or len(metrics.read(str(tmp_path / "metrics.jsonl"))) < 20:
      assert process.poll() is None, (tmp_path / "log").read_text()
      time.sleep(0.05)
    process.terminate()
    assert process.wait() == 0
  step = newest(tmp_path)
  assert f"stopped by SIGTERM: step {step} is saved" in (tmp_path / "log").read_text()
  assert series(tmp_path)[-1]["step"] == step


@pytest.mark.parametrize("mesh", [{"data": 2}, {"data": 4}, {"data": 1, "fsdp": 4}, {"data": 2, "fsdp": 2}])
def test_meshes_agree(whole, tmp_path, mesh):
  close(run(tmp_path, **{f"mesh.{axis}": size for axis, size in mesh.items()}), series(whole), rtol=2e-5)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_micro_batches_with_uneven_weights_equal_the_whole_batch(whole, tmp_path, accumulate):
  close(run(tmp_path, accumulate=accumulate), series(whole), rtol=2e-5)


def test_micro_batches_on_a_mesh_equal_the_whole_batch(whole, tmp_path):
  close(run(tmp_path, accumulate=4, **{"mesh.data": 2, "mesh.fsdp": 2}), series(whole), rtol=2e-5)


def test_a_checkpoint_resumes_on_another_mesh(whole, tmp_path):
  run(tmp_path, steps=15, **{"mesh.data": 2, "mesh.fsdp": 2, "optimizer.decay": "constant"})
  resumed = run(tmp_path, **{"optimizer.decay": "constant", "mesh.data": 1})
  straight = run(tmp_path / "straight", **{"optimizer.decay": "constant"})
  close([r for r in resumed if r["split"] == "train"], [r for r in straight if r["split"] == "train"], rtol=2e-5)


def test_two_processes_train_as_one(whole, tmp_path):
  said = run_together(command(tmp_path / "run", "--distributed"), tmp_path / "log")
  assert "17 parameters on 4 × cpu" in said
  close(series(tmp_path / "run"), series(whole), rtol=2e-5)


DAMAGE = ("truncated", "emptied", "metadata")


def spoil(checkpoint_folder, damage: str) -> None:
  """Damages the files of a checkpoint in one of the ways DAMAGE."""
  for file in [path for path in checkpoint_folder.rglob("*") if path.is_file()]:
    if damage == "truncated" and "ocdbt" not in file.name and "/d/" in str(file):
      os.truncate(file, file.stat().st_size // 2)
    elif damage == "emptied":
      os.truncate(file, 0)
    elif damage == "metadata" and "METADATA" in file.name:
      file.unlink()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, tmp_path, damage, capsys):
  run(tmp_path)
  *_, before, _ = checkpoint.saved_steps(str(tmp_path))
  spoil(tmp_path / "checkpoints" / "20", damage)
  capsys.readouterr()
  again, straight = run(tmp_path), series(whole)
  said = capsys.readouterr().err.splitlines()
  assert len(said) == 2
  assert said[0].startswith(f"checkpoint {before} holds no memory")  # only the newest keeps what is carried
  assert said[1].startswith("checkpoint 20 is damaged and was moved to")
  assert (tmp_path / "damaged" / "20").exists()
  assert [(r["step"], r["split"]) for r in again] == [(r["step"], r["split"]) for r in straight]
  assert [r for r in again if r["step"] <= before] == [r for r in straight if r["step"] <= before]
  seen = [r["seen"] for r in again if r["split"] == "train"]
  assert seen[before:] == list(range(1, 21 - before))


def test_checkpoints_that_cannot_be_read_at_all_are_an_error_and_stay(tmp_path):
  run(tmp_path, steps=5)
  spoil(tmp_path / "checkpoints", "emptied")
  with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
    run(tmp_path)
  assert (tmp_path / "checkpoints" / "5").exists()


def weights(workdir) -> np.ndarray:
  here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
  shape = jax.ShapeDtypeStruct((1, toy.WIDTH, toy.WIDTH), np.float32, sharding=here)
  bias = jax.ShapeDtypeStruct((), np.float32, sharding=here)
  return np.asarray(checkpoint.restore_params(str(workdir), {"layers": {"kernel": shape}, "bias": bias})["bias"])


@pytest.mark.parametrize("damage", ["truncated", "emptied"])
def test_weights_alone_fall_back_too_and_nothing_is_moved(tmp_path, damage, capsys):
  run(tmp_path, steps=15, **{"optimizer.decay": "constant"})
  before = weights(tmp_path)
  run(tmp_path, steps=20, **{"optimizer.decay": "constant"})
  assert weights(tmp_path) != before
  spoil(tmp_path / "checkpoints" / "20", damage)
  files = sorted(tmp_path.rglob("*"))
  capsys.readouterr()
  assert weights(tmp_path) == before
  said = capsys.readouterr().err.splitlines()
  assert len(said) == 1
  assert re.match(r"checkpoint 20 in .* is damaged and was passed over \(.+\)$", said[0])
  assert sorted(tmp_path.rglob("*")) == files
  spoil(tmp_path / "checkpoints", "emptied")
  with pytest.raises(ValueError, match=r"^no checkpoint in .* can be read \(step 20: .*\); name another workdir$"):
    weights(tmp_path)


def test_a_full_disk_ends_in_one_line_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
  run(tmp_path, steps=5)
  monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 90, 10))
  with pytest.raises(OSError, match=r"no room in .* step 10, which needs 32 MB free; .* continues from step 5"):
    run(tmp_path)
  monkeypatch.undo()
  assert newest(tmp_path) == 5


MANY_ARRAYS = """
import dataclasses, shutil, jax
from tests.training import toy
import train
if {unasked}:  # as if others filled the disk after the question
  shutil.disk_usage = lambda path: shutil._ntuple_diskusage(10**12, 0, 10**12)
def build(config):
  objective = toy.objective()
  pads = lambda key: {{f"pad{{i}}": jax.random.normal(jax.random.fold_in(key, i), (20_000,)) for i in range(60)}}
  larger = objective._replace(init=lambda key: objective.init(key) | pads(key))
  return dataclasses.replace(toy.build(config), objective=larger)
train.run(build)
"""


@pytest.mark.parametrize(
  ("kilobytes", "unasked", "said"),
  [
    (50_000, False, "no room in .* for the checkpoint of step 5, which needs 54 MB free; .* from step 0$"),
    pytest.param(7_000, True, "a checkpoint could not be written .* continues from step 5$", marks=pytest.mark.slow),
    (9_000, True, "(cannot be written .No space left on device|a checkpoint could not be written )"),
  ],
)
def test_a_disk_that_is_really_full_ends_in_one_line(tmp_path, kilobytes, unasked, said):
  mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {tmp_path}"
  if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
    pytest.skip("this system does not let users mount a tmpfs")
  program = [sys.executable, "-c", MANY_ARRAYS.format(unasked=unasked), *command(tmp_path / "run")[3:]]
  done = subprocess.run(
    ["unshare", "-rm", "sh", "-c", mount + ' && exec "$@"', "sh", *program],
    env=ENV | {"PYTHONPATH": "."},
    capture_output=True,
    text=True,
    timeout=600,
  )
  lines = done.stderr.splitlines()
  (error,) = [line for line in lines if line.startswith("error: ")]
  assert re.match(f"error: .*{said}", error)
  assert "Event loop is closed" not in done.stderr
  assert unasked or len(lines) == 1, done.stderr  # a disk that fills up during a save may stop other threads too
  assert done.returncode == 1


def test_best_and_newest_checkpoints_stay(tmp_path):
  run(tmp_path, steps=20, keep_last=1, eval_every=5, **{"optimizer.learning_rate": 0.0})
  losses = {r["step"]: r["loss"] for r in series(tmp_path) if r["split"] == "eval" and r["step"]}
  kept = {int(p.name) for p in (tmp_path / "checkpoints").iterdir()}
  best = max(step for step, loss in losses.items() if loss == min(losses.values()))
  assert kept == {20, best}


def test_a_state_that_is_not_finite_is_never_saved(tmp_path):
  with pytest.raises(FloatingPointError, match=r"loss is .* at step"):
    run(tmp_path, **{"optimizer.learning_rate": 1e38, "optimizer.clip": 0.0, "optimizer.warmup_steps": 0})
  assert newest(tmp_path) is None


def test_another_run_in_the_workdir_is_refused_by_field(whole):
  # `accumulate` gives other dropout masks; `eval_batches` another held-out loss.
  for name, value in (("seed", 0), ("accumulate", 1), ("eval_batches", 2)):
    with pytest.raises(ValueError, match=f"{name} is {value} there and {value + 1} here.*--workdir"):
      run(whole, **{name: value + 1})


@pytest.mark.parametrize("content", [b"[1]", b"null", b'"text"', b"{", b"\xff\xfe", b""])
def test_a_config_json_that_is_none_is_an_error_of_one_line(tmp_path, content):
  (tmp_path / "config.json").write_bytes(content)
  with pytest.raises(ValueError, match=r"config\.json .*delete it, or use another --workdir$") as raised:
    settings.check_identity(str(tmp_path), {"seed": 0})
  assert len(str(raised.value).splitlines()) == 1


def test_a_second_run_in_a_workdir_is_kept_out_while_the_first_is_at_work(tmp_path):
  run(tmp_path, steps=5)
  with open(tmp_path / ".lock") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(ValueError, match=r"^another run is at work in .*--workdir$"):
      run(tmp_path)
  assert series(tmp_path)[-1]["step"] == 5
  program = "import sys; from training.workdir import claimed\nwith claimed(sys.argv[1]): print(flush=True); input()"
  held = subprocess.Popen(
    [sys.executable, "-c", program, str(tmp_path)], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE
  )
  held.stdout.readline()
  with pytest.raises(ValueError, match="another run is at work"):
    run(tmp_path)
  held.kill()  # whatever ends a run frees its workdir
  held.wait()
  assert run(tmp_path)[-1]["step"] == 20


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_workdir_that_is_a_file_is_refused(tmp_path, path):
  (tmp_path / "file").write_text("text")
  with pytest.raises(ValueError, match=r"is a file or lies in one; --workdir must name a folder"):
    run(tmp_path / path)


def test_fewer_steps_than_done_leave_the_workdir_as_it_is(tmp_path, capsys):
  before = run(tmp_path, steps=10)
  config = (tmp_path / "config.json").read_bytes()
  assert run(tmp_path, steps=5) == before
  assert capsys.readouterr().out.splitlines()[-1] == f"nothing left to do: {tmp_path} holds step 10"
  assert (tmp_path / "config.json").read_bytes() == config


def test_fields_that_change_no_number_may_differ(tmp_path):
  run(tmp_path, steps=5)
  run(tmp_path, steps=6, log_every=2, keep_last=3)


def test_a_batch_that_does_not_divide_over_the_mesh_is_refused(tmp_path):
  with pytest.raises(ValueError, match="batch_size=18 is not divisible by 4 devices"):
    run(tmp_path, batch_size=18, stages=(), **{"mesh.data": 4})
  assert not (tmp_path / "config.json").exists()


def test_config_json_names_every_field(whole):
  with open(whole / "config.json") as file:
    written = json.load(file)
  expected = settings.as_json(toy.get_config())
  expected["mesh"]["data"] = 1  # the tests' one device
  assert written == expected
