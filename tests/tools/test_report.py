"""Reports: which runs are one group, what numbers are said of them, and the page."""

import json
import pathlib
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from pretrained import export
from pretrained.load import load
from tools import cli, report, report_charts, report_numbers, report_runs

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
CONFIG = {
  "family": "encoder",
  "seed": 0,
  "steps": 4,
  "init_from": "",
  "optimizer": {"learning_rate": 1e-4, "name": "adamw"},
  "objective": {"pair": "nsp", "masking": {"rate": 0.15}},
  "data": {"corpus": "corpora/wiki", "corpus_fingerprint": "a" * 64},
}


def config(**fields) -> dict:
  """CONFIG with fields changed; "__" for the dot."""
  result = json.loads(json.dumps(CONFIG))
  for name, value in fields.items():
    *sections, last = name.split("__")
    section = result
    for one in sections:
      section = section[one]
    section[last] = value
  return result


def records(*losses: float, **more) -> list[dict]:
  """Held-out records, two steps apart, and `more` metrics with as many values."""
  return [
    {"step": 2 * i, "split": "eval", "loss": loss} | {name: values[i] for name, values in more.items()} | {"wall_s": i}
    for i, loss in enumerate(losses)
  ]


def write(folder: pathlib.Path, log: list[dict], **fields) -> pathlib.Path:
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "config.json").write_text(json.dumps(config(**fields)))
  (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in log))
  return folder


def groups(*folders: pathlib.Path, names=()) -> list[report_runs.Group]:
  return report_runs.group([report_runs.read(one) for one in report_runs.find(map(str, folders))], names)


@pytest.fixture
def grouped(tmp_path):
  """Names and seeds of the groups of runs that have these fields."""

  def call(*runs: dict, folders=()) -> dict:
    log = records(3.0, 2.0)
    names = folders or [f"run{i}" for i in range(len(runs))]
    written = [write(tmp_path / name, log, **fields) for name, fields in zip(names, runs, strict=True)]
    return {group.name: group.seeds for group in groups(*written)}

  return call


@pytest.fixture
def call(monkeypatch, capsys):
  def run(*arguments) -> str:
    monkeypatch.setattr("sys.argv", ["report", *map(str, arguments)])
    cli.run(report.main)
    return capsys.readouterr().out

  return run


def test_runs_that_differ_in_seed_and_paths_are_one_group(grouped):
  found = grouped(
    {"seed": 1},
    {"seed": 0, "data__corpus": "elsewhere/wiki"},
    {"seed": 0, "objective__pair": "sop"},
    {"seed": 1, "objective__pair": "sop", "init_from": ""},
  )
  assert found == {"pair=nsp": [0, 1], "pair=sop": [0, 1]}


def test_a_run_from_before_a_field_is_in_a_group_with_its_default(grouped):
  assert list(grouped({"seed": 1}, {"seed": 2, "objective__words": "mlm"}).values()) == [[1, 2]]
  assert list(grouped({"seed": 1}, {"seed": 2, "objective__words": "ltr"})) == ["words=mlm", "words=ltr"]


def test_a_value_that_most_groups_have_is_not_said(grouped):
  found = grouped(
    {}, {"objective__pair": "sop"}, {"objective__masking__rate": 0.3}, {"optimizer__learning_rate": 0.002}
  )
  assert list(found) == ["base", "pair=sop", "rate=0.3", "learning_rate=0.002"]


def test_a_field_is_named_whole_where_its_end_is_another_fields_too(grouped):
  assert list(grouped({}, {"optimizer__name": "lamb", "data__name": "x"})) == [
    "optimizer.name=adamw",
    "optimizer.name=lamb, data.name=x",
  ]


def test_other_texts_are_named_by_their_folder(grouped):
  other = {"data__corpus": "corpora/books", "data__corpus_fingerprint": "b" * 64}
  assert list(grouped({}, other)) == ["corpus=corpora/wiki", "corpus=corpora/books"]


def test_checkpoints_of_other_seeds_are_alike(grouped):
  start = lambda name, seed: {"seed": seed, "init_from": f"runs/{name}/seed={seed}"}
  found = grouped(start("mlm", 0), start("mlm", 1), start("ltr", 0), start("ltr", 1))
  assert found == {"init_from=runs/mlm/seed=*": [0, 1], "init_from=runs/ltr/seed=*": [0, 1]}


def test_unrelated_runs_are_named_by_their_folders(grouped):
  other = {"family": "xlnet", "steps": 9, "optimizer__name": "lamb", "objective__pair": "none"}
  folders = ["bert/seed=3", "bert/seed=4", "xlnet"]
  assert grouped({"seed": 3}, {"seed": 4}, other, folders=folders) == {"bert": [3, 4], "xlnet": [0]}


def test_what_all_folders_have_in_their_paths_is_not_said(grouped):
  start = lambda name: {"init_from": f"runs/{name}/pretraining/seed=0"}
  folders = ["x/bert/task/seed=0", "x/albert-1/task/seed=0"]
  assert list(grouped(start("bert/x"), start("albert/x"), folders=folders)) == ["bert", "albert-1"]


def test_workdirs_in_a_folder_are_found_in_the_order_of_their_numbers(tmp_path):
  for name in ("b/seed=10", "b/seed=9", "a"):
    write(tmp_path / name, records(1.0))
  (tmp_path / "c").mkdir()
  found = report_runs.find([str(tmp_path), str(tmp_path / "a")])
  assert [str(one.relative_to(tmp_path)) for one in found] == ["a", "b/seed=9", "b/seed=10"]


def test_a_run_in_a_folder_that_has_just_begun_is_left_out(tmp_path, call, capsys):
  write(tmp_path / "runs" / "a", records(1.0))
  write(tmp_path / "runs" / "b", [], seed=1)
  assert json.loads(call(tmp_path / "runs", "--json"))["groups"][0]["seeds"] == [0]
  assert report_runs.find([str(tmp_path / "runs")]) == [tmp_path / "runs" / "a"]
  assert "b has no record yet and is left out" in capsys.readouterr().err


def test_last_best_and_baselines_by_hand(tmp_path):
  """Of a loss less is better, of an accuracy more, and step 0 is never the best; chance is the commoner answer."""
  nsp = {"nsp_accuracy": [0.9, 0.7, 0.6], "nsp_positive": [0.5, 0.5, 0.4]}
  one = write(tmp_path / "0", records(1.0, 2.0, 4.0, **nsp, mlm_loss=[0, 0, 5.0], unigram_loss=[0, 0, 6.0]))
  nsp = {"nsp_accuracy": [0.9, 0.5, 0.8], "nsp_positive": [0.5, 0.5, 0.5]}
  two = write(tmp_path / "1", records(1.0, 7.0, 6.0, **nsp, mlm_loss=[0, 0, 4.0], unigram_loss=[0, 0, 6.5]), seed=1)
  (group,) = groups(one, two)
  assert report_numbers.metrics_of([group]) == ["loss", "nsp_accuracy", "mlm_loss"]
  loss, nsp, mlm = (report_numbers.scored(group, name) for name in ("loss", "nsp_accuracy", "mlm_loss"))
  assert (loss.last.mean, loss.last.deviation) == (5.0, pytest.approx(2**0.5))
  assert (loss.best.values, loss.best_steps, loss.baseline) == ((2.0, 6.0), (2, 4), None)
  assert (nsp.best.values, nsp.best_steps) == ((0.7, 0.8), (2, 4))
  assert nsp.baseline.values == (0.6, 0.5)
  assert (mlm.baseline.mean, mlm.baseline_name) == (6.25, "word frequencies")


def test_less_of_a_part_of_a_loss_is_better(tmp_path):
  (group,) = groups(write(tmp_path / "0", records(9.0, 5.0, 6.0, plm_loss_quarter_1=[9.0, 5.0, 6.0])))
  assert report_numbers.scored(group, "plm_loss_quarter_1").best.mean == 5.0


def test_one_run_has_no_deviation_and_what_is_no_number_is_said_so(tmp_path):
  (group,) = groups(write(tmp_path / "0", records(2.0, 3.0, f1=[0.1, float("nan")])))
  assert report_numbers.scored(group, "loss").last == report_numbers.Spread((3.0,), 3.0, None)
  written = json.loads(json.dumps(report_numbers.as_json([group]), allow_nan=False))
  assert written["groups"][0]["metrics"]["f1"]["last"] == {"mean": None, "deviation": None, "values": [None]}


def test_curves_are_over_the_steps_that_all_seeds_have(tmp_path):
  one, two = records(8.0, 4.0, 2.0), records(8.0, 6.0)
  (group,) = groups(write(tmp_path / "0", one), write(tmp_path / "1", two, seed=1))
  series = report_numbers.held_out(group, "loss")
  assert (series.steps.tolist(), series.mean.tolist()) == ([0, 2], [8.0, 5.0])
  np.testing.assert_allclose(series.deviation, [0, 2**0.5])


def test_many_points_are_averaged_within_each_run(tmp_path):
  train = lambda shift: [{"step": i, "split": "train", "loss": float(i + shift)} for i in range(1, 7)]
  (group,) = groups(write(tmp_path / "0", train(0)), write(tmp_path / "1", train(2), seed=1))
  series = report_numbers.series(group, "train", "loss", points=3)
  assert (series.steps.tolist(), series.mean.tolist()) == ([1.5, 3.5, 5.5], [2.5, 4.5, 6.5])
  np.testing.assert_allclose(series.deviation, [2**0.5] * 3)


def test_speed_by_hand(tmp_path):
  """Medians of records; a step's time leaves out what an evaluation took, or is the log's own."""
  walls = [1.0, 3.0, 5.0, 15.0, 16.0]
  log = [{"step": 10 * i, "split": "train", "tokens_per_s": 100.0 * i, "wall_s": w} for i, w in enumerate(walls, 1)]
  log.insert(3, {"step": 30, "split": "eval", "loss": 1.0, "wall_s": 14.0})
  (group,) = groups(write(tmp_path / "0", log))
  found = {name: one.mean for name, one in report_numbers.speed(group).items()}
  assert found == {"tokens_per_s": 300.0, "step_s": 0.2, "wall_s": 16.0}
  timed = [one | {"step_s": 0.5} if one["split"] == "train" else one for one in log]
  (group,) = groups(write(tmp_path / "1", timed))
  assert report_numbers.speed(group)["step_s"].mean == 0.5


def test_a_torn_last_line_is_ignored(tmp_path, call):
  workdir = write(tmp_path / "run", records(3.0, 2.0))
  before = call(workdir, "--json")
  with open(workdir / "metrics.jsonl", "a") as log:
    log.write('{"step": 4, "split": "ev')
  assert call(workdir, "--json") == before
  assert "note:" not in call(workdir, f"--output={tmp_path / 'out'}")


def test_lines_behind_a_damaged_one_are_told_of(tmp_path, call):
  workdir = write(tmp_path / "run", records(3.0, 2.0, 1.0))
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  (workdir / "metrics.jsonl").write_text("\n".join([lines[0], lines[1][:9], lines[2]]) + "\n")
  out = call(workdir, f"--output={tmp_path / 'out'}")
  assert f"note: {workdir}: 2 lines of the log, behind a damaged one, are left out" in out
  assert "2 lines of the log behind a damaged one" in (tmp_path / "out" / "index.html").read_text()


def test_the_table_as_json(tmp_path, call):
  log = records(3.0, 2.5, mlm_loss=[3.0, 2.5], unigram_loss=[6.0, 6.0])
  write(tmp_path / "a", log)
  write(tmp_path / "b", log, objective__pair="sop", steps=2)
  found = json.loads(call(tmp_path, "--json", "--names", "with NSP", "with SOP"))
  assert (found["metrics"], found["differing"]) == (["loss", "mlm_loss"], ["steps", "objective.pair"])
  first, second = found["groups"]
  assert (first["name"], second["name"]) == ("with NSP", "with SOP")
  assert (first["fields"], first["steps"], first["finished"]) == ({"steps": 4, "objective.pair": "nsp"}, [2], 0)
  assert second["finished"] == 1
  assert second["metrics"]["mlm_loss"] == {
    "last": {"mean": 2.5, "deviation": None, "values": [2.5]},
    "best": {"mean": 2.5, "deviation": None, "values": [2.5], "steps": [2]},
    "baseline": {"mean": 6.0, "deviation": None, "values": [6.0], "name": "word frequencies"},
  }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
  """The page and the folder of a report on two groups, the first with two seeds."""
  folder = tmp_path_factory.mktemp("report")
  train = [{"step": 1, "split": "train", "mlm_loss": 3.5, "tokens_per_s": 1234.0, "wall_s": 0.5}]
  of = lambda last: train + records(5.0, 4.0, last, mlm_loss=[5.0, 4.0, last], unigram_loss=[6.0] * 3)
  write(folder / "runs/0", of(2.0))
  write(folder / "runs/1", of(4.0), seed=1)
  write(folder / "runs/2", of(2.5), objective__pair="<b>&", steps=99)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr("sys.argv", ["report", str(folder / "runs"), f"--output={folder / 'out'}", "--title=NSP & others"])
    cli.run(report.main)
  return (folder / "out" / "index.html").read_text(), folder / "out"


def test_the_page_fetches_nothing(written):
  page, _ = written
  assert not re.search(r"(https?:|url\((?!#)|<link|@import|\bsrc=(?!\"data:))", page)


def test_the_page_says_the_numbers(written):
  page, _ = written
  for text in ("3 runs in 2 groups", "1 to 2 seeds each", "1 not finished", "word frequencies", "6.0000", "1,234"):
    assert text in page
  assert '3.0000 <span class="sd">± 1.4142</span>' in page
  assert '<span class="best">2.5000</span>' in page
  assert "objective.masking.rate" in page
  assert "NSP &amp; others" in page
  assert "pair=<wbr>&lt;b&gt;&amp;" in page
  assert "<b>&" not in page


def test_charts_have_the_pages_colours_and_ids_of_their_own(written):
  page, _ = written
  assert page.count('role="img"') == 2
  assert "#0a00" not in page
  assert "#0b00" not in page
  assert "var(--c1)" in page
  ids = re.findall(r'\bid="([^"]*)"', page)
  assert len(ids) == len(set(ids))


def test_each_chart_is_a_png(written):
  _, folder = written
  files = sorted(folder.glob("*.png"))
  assert [file.name for file in files] == ["loss.png", "mlm_loss.png"]
  assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_the_fall_from_random_weights_does_not_decide_the_span():
  steps = np.arange(0.0, 101.0, 10)
  series = report_numbers.Series(steps, np.where(steps < 10, 100.0, 1.0 + steps / 100), np.full(11, 0.25))
  low, high = report_charts.value_span([report_charts.Curve(0, "", series, None)], [3.0])
  assert (low, high) == pytest.approx((0.85 - 0.129, 3.0 + 0.129))


def test_groups_are_told_apart_by_colour_or_marker():
  styles = [report_charts.style_of(number) for number in range(49)]
  assert len(set(styles)) == 49
  assert {place for place, _ in styles[:7]} == set(range(7))


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> pathlib.Path:
  """Workdirs with a log and a random model; the ALBERT's layers have two blocks each."""
  folder = tmp_path_factory.mktemp("models")
  for family in ("albert", "xlnet"):
    export.write(load(FIXTURES / family), folder / family, "bidir")
    model = json.loads((folder / family / "config.json").read_text())
    write(folder / family, records(3.0, 2.0), **model)
  return folder


def test_blanks_and_attention(models, tmp_path, call):
  text = "A [MASK] sat [MASK]."
  out = call(models, f"--output={tmp_path}", f"--fill={text}", "--attention=the cat", "--top_k=2")
  assert "3 PNG files beside it" in out
  page = (tmp_path / "index.html").read_text()
  assert page.count('<ol class="pieces">') == 2 * 2
  assert page.count("<li><b>") == 2 * 2 * 2
  configs = [load(folder).config for folder in models.iterdir()]
  assert page.count("<button") == sum(c.num_layers * getattr(c, "inner_groups", 1) * c.num_heads for c in configs)
  assert not re.search(r"https?:", page)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (
      ["nowhere"],
      "nowhere is no workdir and none lies in it: there is no such folder; name the --workdir of",
    ),
    (["hollow"], "hollow is no workdir and none lies in it: it holds no config.json and metrics.jsonl"),
    (["empty"], "metrics.jsonl holds no record yet; leave"),
    (["torn"], "metrics.jsonl holds no record yet; leave"),
    (["strange"], "config.json is no run's config (KeyError: 'seed'); train.py writes one"),
    (["gs://bucket/run"], "gs://bucket/run is a bucket's; copy its config.json and metrics.jsonl to a folder here"),
    (["good", "--names", "a", "b"], "--names has 2 and there are 1 groups of runs: good"),
    (
      ["good", "--output=good/metrics.jsonl"],
      "good/metrics.jsonl is a file or lies in one; --output must",
    ),
    (["good", "--top_k=0"], "--top_k=0 must be at least 1"),
    (["good", "--fill=no blank"], "good: no model here"),
  ],
)
def test_mistakes_end_in_a_line(tmp_path, monkeypatch, call, capsys, arguments, message):
  monkeypatch.chdir(tmp_path)
  write(tmp_path / "good", records(1.0))
  write(tmp_path / "empty", [])
  (write(tmp_path / "torn", []) / "metrics.jsonl").write_text('{"step": 0, "spl')
  (write(tmp_path / "strange", records(1.0)) / "config.json").write_text("{}")
  (tmp_path / "hollow").mkdir()
  with pytest.raises(SystemExit) as stop:
    call(*arguments, *([] if any("--output" in x for x in arguments) else ["--output=out"]))
  assert stop.value.code == 1
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith("error: ")
  assert message in line


def test_a_page_needs_a_place(tmp_path, call, capsys):
  write(tmp_path / "run", records(1.0))
  with pytest.raises(SystemExit):
    call(tmp_path / "run")
  assert "--output=DIR is missing" in capsys.readouterr().err
