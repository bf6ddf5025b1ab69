"""The six comparisons: which runs they take, what is not run again, and tables by hand."""

import json
import pathlib
import statistics
import subprocess

import pytest

from parts import pretraining
from tools import ablation_plan, ablation_table, ablations, sweep_plan
from tools.ablation_plan import COMPARISONS, PRETRAINING, Arm
from tools.ablation_table import Results
from training import run_flags
from training.stages import Stage

SOURCES = {"conll2003": "CONLL", "stsb": "GLUE"}


def plan(tmp_path, names=tuple(COMPARISONS), seeds=(0, 1), sources=SOURCES):
  return ablation_plan.needs(names, seeds, 8, tmp_path, sources)


def finish(run, **metrics):
  """Writes what a finished run leaves."""
  run.workdir.mkdir(parents=True)
  steps = run.recipe["steps"] or 5
  (run.workdir / "config.json").write_text(json.dumps({"steps": steps}))
  records = [{"step": step, "split": "eval", "wall_s": 60.0, **metrics} for step in (0, steps)]
  (run.workdir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
  sweep_plan.finish(run)


def test_an_arm_of_several_comparisons_is_run_once(tmp_path):
  found = plan(tmp_path)
  arms = {arm for comparison in COMPARISONS.values() for arm in comparison.arms}
  assert len(arms) == 12
  assert len(found) == 2 * len(arms)
  assert [need.pretraining.seed for need in found] == [0] * 12 + [1] * 12
  workdirs = [run.workdir for need in found for run in (need.pretraining, *need.after.values())]
  assert len(set(workdirs)) == len(workdirs)
  asked = {need.arm.row: set(need.after) for need in found if need.arm.family == "albert"}
  assert asked["all"] == {"conll2003", "stsb", "sop", "nsp"}
  assert asked["attention"] == {"conll2003", "stsb"}


def test_each_run_is_a_command_that_train_reads(tmp_path):
  for need in plan(tmp_path, seeds=(3,)):
    for run in (need.pretraining, *need.after.values()):
      _, config = run_flags.parsed(run.arguments)
      assert config.seed == 3
      assert config.init_from == ("" if run == need.pretraining else str(need.pretraining.workdir))
  _, config = run_flags.parsed(plan(tmp_path, ["ltr"])[1].pretraining.arguments)
  assert (config.objective.words, config.model.causal, config.steps) == ("ltr", True, 8)
  assert pretraining.stages_of(config) == [Stage(0, 0, 6, 32, 128), Stage(1, 6, 8, 64, 64)]


def test_a_task_without_files_is_left_out(tmp_path):
  assert all(set(need.after) == {"conll2003"} for need in plan(tmp_path, ["nsp"], sources={"conll2003": "CONLL"}))


def test_what_is_known_is_not_run_again_whether_its_workdir_is_there_or_not(tmp_path):
  need = plan(tmp_path, ["nsp"], seeds=(0,))[0]
  results = Results(tmp_path / "results.json", 8)
  assert results.missing_runs(need) == [need.pretraining, *need.after.values()]
  finish(need.pretraining, masked_loss=5.0)
  finish(need.after["conll2003"], f1=0.5)
  results.take_finished(need)
  assert results.missing_runs(need) == [need.after["stsb"]]

  again = Results(tmp_path / "results.json", 8)
  assert again.values == results.values
  moved = plan(tmp_path / "elsewhere", ["nsp"], seeds=(0,))[0]  # no workdir there: what is left needs the weights again
  assert again.missing_runs(moved) == [moved.pretraining, moved.after["stsb"]]
  finish(need.after["stsb"], pearson=0.2)
  again.take_finished(need)
  assert not Results(tmp_path / "results.json", 8).missing(moved)
  with pytest.raises(ValueError, match=r"is of --steps=8; use that, or another --output"):
    Results(tmp_path / "results.json", 9)


def test_a_corpus_of_other_text_is_not_taken_for_this_one(tmp_path, monkeypatch):
  commands = []
  ran = subprocess.CompletedProcess((), 0)
  monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command[2]) or ran)
  ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  assert commands == ["tools.train_tokenizer", "tools.prepare_corpus"]
  (tmp_path / "bert").mkdir()
  (tmp_path / "bert" / "corpus.json").touch()
  ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  ablations.prepare("bert", tmp_path, 100, [])
  assert len(commands) == 2
  for vocab_size, text in ((200, ["--input", "a.txt"]), (100, ["--input", "b.txt"])):
    with pytest.raises(ValueError, match=r"is made by --vocab_size=100 --input a.txt; use these, or another --output"):
      ablations.prepare("bert", tmp_path, vocab_size, text)


def test_the_table_by_hand(tmp_path):
  results = Results(tmp_path / "results.json", 8)
  scores = {"k6": (0.5, 0.6, 0.7), "no_memory": (0.4, 0.55, 0.75)}
  for row, values in scores.items():
    of = {str(seed): {"f1": value} for seed, value in enumerate(values)}
    losses = {str(seed): {"plm_loss": 4.0, "wall_s": 120.0} for seed in range(3)}
    results.values["arms"][Arm("xlnet", row).name] = {"conll2003": of, PRETRAINING: losses}
  lines = ablation_table.text(["memory"], results).splitlines()
  assert lines[0] == "**XLNet's memory, on and off**"
  assert "| k6 | 0 to 3 | 4.000 ± 0.000 | 0.600 ± 0.100 |  | 2.0 |" in lines
  differences = [-0.1, -0.05, 0.05]
  error = statistics.stdev(differences) / 3**0.5
  assert f"| no_memory - k6 |  | +0.000 ± 0.000 | {statistics.mean(differences):+.3f} ± {error:.3f} |  |  |" in lines
  assert "k6 over no_memory on conll2003 f1 in 2 of 3 seeds, p 0.53" in lines[-1]
  assert "Here: nothing yet." in ablation_table.text(["plm"], Results(tmp_path / "none.json", 8))


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (["--only=nsp,nps"], "--only=nps is no comparison; use some of nsp, ltr, sharing, sop, plm, memory"),
    (["--seeds=0"], "--seeds=0 must be at least 1"),
    (["--only="], "--only names no comparison"),
    ([], "corpora/bert is not prepared; say what text it is made of"),
  ],
)
def test_mistakes(flags, said, monkeypatch, tmp_path):
  monkeypatch.setattr("sys.argv", ["ablations", f"--output={tmp_path}", *flags])
  with pytest.raises(ValueError, match=said):
    ablations.main()


def test_a_flag_that_no_tool_has(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr("sys.argv", ["ablations", f"--output={tmp_path}", "--input=text", "--sedes=3", "--dry_run"])
  with pytest.raises(SystemExit):
    ablations.main()
  assert "--sedes=3" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"steps": 8, "arms": 1}'])
def test_a_file_of_results_that_is_none(tmp_path, content):
  (tmp_path / "results.json").write_text(content)
  with pytest.raises(ValueError, match=r"results.json is no file of tools.ablations; delete it"):
    Results(tmp_path / "results.json", 8)


def test_the_documented_tables_are_those_of_the_documented_numbers():
  docs = pathlib.Path(ablations.__file__).parent.parent / "docs"
  numbers = json.loads((docs / "ablations" / ablations.RESULTS).read_text())
  tables = ablation_table.text(list(COMPARISONS), Results(docs / "ablations" / ablations.RESULTS, numbers["steps"]))
  assert tables in (docs / "results.md").read_text()
