"""Predictions on the command line agree with the run's own evaluation."""

import dataclasses
import json

import pytest

import scores
from data.tasks import constant, readers
from data.tasks.table import TASKS
from scores import files
from tests import tasks
from tests.pretrained import heads
from tools import cli, evaluate, predict


@pytest.fixture
def call(monkeypatch, capsys):
  def run(tool, *arguments) -> str:
    monkeypatch.setattr("sys.argv", [tool.__name__, *map(str, arguments)])
    cli.run(tool.main)
    return capsys.readouterr().out

  return run


SLOW = pytest.mark.slow


@pytest.mark.parametrize(("kind", "family"), [("classification", "bert"), pytest.param("span", "xlnet", marks=SLOW)])
def test_what_is_predicted_scores_as_the_run_did(kind, family, tmp_path, call, capsys):
  """By the checkpoint of the first step of two."""
  source = tasks.write(tmp_path / "files", kind)
  every = {"eval_every": 1, "checkpoint_every": 1}
  records = tasks.run(tmp_path / "run", tasks.config(source, kind, family, steps=2, **every))
  assert f"({constant.SAID[kind]})" in capsys.readouterr().out  # beside the outcome
  (evaluated,) = [record for record in records if (record["step"], record["split"]) == (1, "eval")]
  checkpoint, output = f"{tmp_path / 'run'}@1", tmp_path / "out.jsonl"
  assert predict.threshold_of(checkpoint) == evaluated.get("threshold", 0.0)
  lines = [json.loads(line) for line in (source / "dev.jsonl").read_text().splitlines()]
  unread = {"label": "of no class", "answers": "of no form"}  # predicting needs neither
  (tmp_path / "in.jsonl").write_text("".join(json.dumps(line | unread) + "\n" for line in lines))
  flags = (f"--checkpoint={checkpoint}", f"--input={tmp_path / 'in.jsonl'}", f"--output={output}")
  call(predict, *flags, "--batch_size=4")
  lines = [json.loads(line) for line in output.read_text().splitlines()]
  assert [line["id"] for line in lines] == [f"dev{i}" for i in range(9)]
  gold = (f"--gold={source / 'dev.jsonl'}", "--task=custom", f"--kind={kind}", "--predictions", output, "--json")
  found = json.loads(call(evaluate, *gold))
  name = "accuracy" if kind == "classification" else "exact_match"
  assert found[name] == pytest.approx(evaluated[name], rel=1e-5)
  with pytest.raises(SystemExit, match="1"):
    call(predict, f"--checkpoint={tmp_path / 'run'}@3", *flags[1:])
  assert "run holds no checkpoint of step 3; it holds those of 1, 2\n" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("name", "family", "written"),
  [
    pytest.param("mnli", "bert", ["MNLI-m.tsv"], marks=SLOW),
    ("squad2", "bert", ["nbest_predictions.json", "null_odds.json", "predictions.json"]),
    pytest.param("stsb", "albert", ["STS-B.tsv"], marks=SLOW),
    pytest.param("conll2003", "bert", ["conll2003.txt"], marks=SLOW),
    pytest.param("race", "xlnet", ["race.tsv"], marks=SLOW),
  ],
)
def test_a_split_goes_into_the_leaderboards_files_which_score_as_the_run_did(name, family, written, tmp_path, call):
  kind = TASKS[name].kind
  source, run, output = tasks.write_official(tmp_path / "files", name), tmp_path / "run", tmp_path / "out"
  # What a regression says is spread by then: no order, which Spearman's is of, hangs on the batch's size.
  learns = {"steps": 12, "optimizer__learning_rate": 3e-4} if kind == "regression" else {"steps": 3}
  evaluated = tasks.run(run, tasks.config(source, kind, family, data__task=name, **learns))[-1]
  flags = (f"--checkpoint={run}", f"--source={source}", "--batch_size=4")
  call(predict, *flags, "--split=dev", f"--output={output}")
  assert sorted(path.name for path in output.iterdir()) == written

  def scored(path, *more) -> dict:
    gold = (f"--task={name}", f"--gold={source}", f"--predictions={path}", "--json", *more)
    found = json.loads(call(evaluate, *gold))
    return {key: value for key, value in found.items() if key in evaluated}

  if kind == "span":
    more = (f"--null_odds={output / 'null_odds.json'}",)
    found = scored(output / "nbest_predictions.json", *more)
    found = scored(output / "nbest_predictions.json", *more, f"--threshold={found['threshold']}")
    assert predict.threshold_of(run) == evaluated["threshold"]
    decided = scored(output / "predictions.json")  # at the run's own threshold
    assert {key: evaluated[key] for key in decided} == pytest.approx(decided, rel=1e-5)
  elif kind == "regression":  # the leaderboard's file holds three digits, within bounds; lines hold all
    lines = tmp_path / "out.jsonl"
    call(predict, *flags, "--split=dev", f"--output={lines}")
    shown = {key: f"{min(max(line.value, 0.0), 5.0):.3f}" for key, line in files.read_lines(lines).items()}
    assert files.read_labels(output / written[0]) == shown
    targets = [example.label for example in readers.read(TASKS[name], source, "dev")]
    rounded = scores.score(TASKS[name].scores, [float(x) for x in shown.values()], targets)
    assert scored(output / written[0]) == pytest.approx({key: rounded[key] for key in ("pearson", "spearman")})
    found = scored(lines)
  else:
    found = scored(output / written[0])
  assert {key: evaluated[key] for key in found} == pytest.approx(found, rel=1e-5)
  assert TASKS[name].main_score in found

  # Test splits have no labels; they are what is predicted if no split is named.
  if name == "mnli":
    call(predict, *flags, f"--output={output / 'test'}")
    assert sorted(path.name for path in (output / "test").iterdir()) == ["MNLI-m.tsv", "MNLI-mm.tsv"]
    lines = files.read_labels(output / "test" / "MNLI-m.tsv")
    assert list(lines) == [str(10 + i) for i in range(7)]
    assert set(lines.values()) <= set(TASKS["mnli"].labels)


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (["--source=files", "--output=out", "--task=rte"], "task rte has the labels entailment, not_entailment, and the "),
    (["--source=files", "--output=out", "--task=stsb"], "task stsb is regression, and the checkpoint's head classific"),
    (["--source=files", "--output=out", "--task=mnli", "--texts=a"], "--texts is of a task of your own"),
    (["--source=files", "--output=MNLI-m.tsv"], "--output=MNLI-m.tsv: name a .jsonl file, or a folder"),
    (["--input=in.tsv", "--output=out.jsonl"], "--input=in.tsv: name a file of JSON lines"),
    (
      ["--source=files", "--output=out", "--task=mnli", "--split", "dev", "test"],
      "dev, test would all be out/MNLI-m.tsv",
    ),
    (["--source=files", "--output=files/MNLI/dev_matched.tsv/o", "--task=mnli"], "o is a file or lies in one"),
    (["--source=files", "--output=o.jsonl", "--task=mnli"], "test, test_mismatched would all be o.jsonl; give one"),
  ],
)
def test_flags_that_do_not_go_together(flags, said, tmp_path, monkeypatch, capsys):
  tasks.write_official(tmp_path / "files", "mnli")
  nli = heads.model("bert", "classification")
  nli = dataclasses.replace(nli, head=dataclasses.replace(nli.head, labels=TASKS["mnli"].labels))
  monkeypatch.setattr(predict, "load", lambda path: nli)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr("sys.argv", ["predict", "--checkpoint=folder", *flags])
  with pytest.raises(SystemExit, match="1"):
    cli.run(predict.main)
  assert said in capsys.readouterr().err


@pytest.mark.parametrize(
  ("output", "there", "said"),
  [
    ("out", "out/MNLI-m.tsv", "note: out/MNLI-m.tsv will be overwritten\n"),
    ("out.jsonl", "out.jsonl", "note: out.jsonl will be overwritten\n"),
    ("out", "out/MNLI-mm.tsv", ""),  # another split's
  ],
)
def test_what_will_be_overwritten_is_said_before_the_work(output, there, said, tmp_path, monkeypatch, capsys):
  def work(checkpoint):
    raise ValueError("the work")

  tasks.write_official(tmp_path / "files", "mnli")
  nli = heads.model("bert", "classification")
  nli = dataclasses.replace(nli, head=dataclasses.replace(nli.head, labels=TASKS["mnli"].labels))
  monkeypatch.setattr(predict, "load", lambda path: nli)
  monkeypatch.setattr(predict, "predictor", work)
  monkeypatch.chdir(tmp_path)
  (tmp_path / there).parent.mkdir(exist_ok=True)
  (tmp_path / there).touch()
  flags = ["--checkpoint=folder", "--source=files", "--task=mnli", "--split=dev", f"--output={output}"]
  monkeypatch.setattr("sys.argv", ["predict", *flags])
  with pytest.raises(SystemExit, match="1"):
    cli.run(predict.main)
  assert capsys.readouterr().err == f"{said}error: the work\n"


def test_a_checkpoint_without_a_head_is_refused(tmp_path, monkeypatch, capsys):
  flags = [f"--checkpoint={tasks.FIXTURES / 'bert'}", "--input=in.jsonl", f"--output={tmp_path / 'out.jsonl'}"]
  monkeypatch.setattr("sys.argv", ["predict", *flags])
  with pytest.raises(SystemExit, match="1"):
    cli.run(predict.main)
  assert "has no head for a task; fine-tune it first" in capsys.readouterr().err
