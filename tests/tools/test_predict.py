"""Predictions on the command line agree with the run's own evaluation."""

import json

import pytest

from tests import tasks
from tools import cli, evaluate, predict


@pytest.fixture
def call(monkeypatch, capsys):
  def run(tool, *arguments) -> str:
    monkeypatch.setattr("sys.argv", [tool.__name__, *map(str, arguments)])
    cli.run(tool.main)
    return capsys.readouterr().out

  return run


@pytest.mark.parametrize(("kind", "family"), [("classification", "bert"), ("span", "xlnet")])
def test_what_is_predicted_scores_as_the_run_did(kind, family, tmp_path, call):
  source = tasks.write(tmp_path / "files", kind)
  evaluated = tasks.run(tmp_path / "run", tasks.config(source, kind, family, steps=2))[-1]
  output = tmp_path / "out.jsonl"
  threshold = evaluated.get("threshold", 0.0) + 1e-3  # it is one question's odds, and rounded in the log
  flags = (f"--checkpoint={tmp_path / 'run'}", f"--input={source / 'dev.jsonl'}", f"--output={output}")
  call(predict, *flags, f"--threshold={threshold}", "--batch_size=4")
  lines = [json.loads(line) for line in output.read_text().splitlines()]
  assert [line["id"] for line in lines] == [f"dev{i}" for i in range(9)]
  gold = (f"--gold={source / 'dev.jsonl'}", "--task=custom", f"--kind={kind}", "--predictions", output, "--json")
  found = json.loads(call(evaluate, *gold))
  name = "accuracy" if kind == "classification" else "exact_match"
  assert found[name] == pytest.approx(evaluated[name], rel=1e-5)


def test_a_checkpoint_without_a_head_is_refused(tmp_path, monkeypatch, capsys):
  flags = [f"--checkpoint={tasks.FIXTURES / 'bert'}", "--input=in.jsonl", f"--output={tmp_path / 'out.jsonl'}"]
  monkeypatch.setattr("sys.argv", ["predict", *flags])
  with pytest.raises(SystemExit, match="1"):
    cli.run(predict.main)
  assert "has no head for a task; fine-tune it first" in capsys.readouterr().err
