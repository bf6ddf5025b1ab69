"""Whatever opens a checkpoint opens the workdirs of every family, or says in one line why not."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

from configs import quickstart
from pretrained.load import load
from tests import runs
from tools import cli, extract_features, fill_mask

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"


def xlnet(corpus: pathlib.Path, **fields):
  c = quickstart.get_config("xlnet")
  c.steps, c.batch_size, c.length = 2, 4, 16
  c.eval_batches = 1
  c.data.corpus, c.data.reuse_len = str(corpus), 8
  c.model.hidden_size, c.model.intermediate_size, c.model.num_heads, c.model.mem_len = 16, 32, 2, 8
  c.objective.perm_size, c.objective.num_predict = 8, 4
  c.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
  return c


def encoder(corpus: pathlib.Path, **fields):
  return runs.config(corpus, **{"steps": 2, **fields})


CONFIGS = {"encoder": encoder, "xlnet": xlnet}


@pytest.fixture(scope="module")
def workdirs(prepared_corpus, tmp_path_factory) -> dict[str, pathlib.Path]:
  """A short run of each family, on the same WordPiece corpus."""
  result = {}
  for family, config in CONFIGS.items():
    result[family] = tmp_path_factory.mktemp(family)
    runs.run(result[family], config(prepared_corpus))
  return result


@pytest.fixture
def call(monkeypatch, capsys):
  def run(tool, *arguments) -> str:
    monkeypatch.setattr("sys.argv", [tool.__name__, *map(str, arguments)])
    cli.run(tool.main)
    return capsys.readouterr().out

  return run


@pytest.mark.parametrize("family", CONFIGS)
def test_blanks_are_filled(workdirs, call, family):
  out = call(fill_mask, f"--checkpoint={workdirs[family]}", "--json", "--top_k=3", "the [MASK] sees [MASK] .")
  blanks = json.loads(out)["masks"]
  assert [len(blank) for blank in blanks] == [3, 3]
  assert all(0 < one["probability"] < 1 for blank in blanks for one in blank)


@pytest.mark.parametrize("family", CONFIGS)
def test_features_are_taken(workdirs, call, tmp_path, family):
  """The rows are those that the family was trained on, whatever the vocabulary."""
  (tmp_path / "lines.txt").write_text("the cat\nthe king ||| a song\n")
  output = tmp_path / "out.npz"
  call(
    extract_features,
    f"--checkpoint={workdirs[family]}",
    f"--input={tmp_path / 'lines.txt'}",
    f"--output={output}",
    "--layers=all",
  )
  found = np.load(output)
  rows = [found["pieces"][a:b].tolist() for a, b in zip(found["offsets"], found["offsets"][1:], strict=False)]
  assert [row[-1 if family == "xlnet" else 0] for row in rows] == ["[CLS]"] * 2
  assert [row.count("[SEP]") for row in rows] == [1, 2]
  assert found["hidden_rep"].shape[1] == 3
  assert np.isfinite(found["hidden_rep"]).all()
  assert ("cls_head" in found) == (family == "encoder")


@pytest.mark.parametrize(("run", "other"), [("encoder", "xlnet"), ("xlnet", "encoder")])
@pytest.mark.parametrize("kind", ["workdir", "folder"])
def test_a_run_does_not_start_from_another_family(workdirs, prepared_corpus, tmp_path, run, other, kind):
  """Said before that the folder's vocabulary is another, too: to prepare the text again would not help."""
  folder = workdirs[other] if kind == "workdir" else FIXTURES / ("xlnet" if other == "xlnet" else "bert")
  said = r"config\.init_from: this run's model has no \S+; the checkpoint is of another family$"
  with pytest.raises(ValueError, match=said) as raised:
    runs.run(tmp_path / "run", CONFIGS[run](prepared_corpus, init_from=str(folder)))
  assert "\n" not in str(raised.value)
  assert not (tmp_path / "run").exists()


def test_an_xlnet_starts_from_another_ones_weights(workdirs, prepared_corpus, tmp_path):
  before = runs.series(workdirs["xlnet"])[-1]
  after = runs.run(tmp_path / "run", xlnet(prepared_corpus, init_from=str(workdirs["xlnet"])))[0]
  assert (after["step"], before["split"], after["split"]) == (0, "eval", "eval")
  assert after["plm_loss"] == pytest.approx(before["plm_loss"], rel=1e-5)
  with pytest.raises(ValueError, match=r"config\.init_from: config\.model\.untie_biases is True there and False"):
    runs.run(tmp_path / "other", xlnet(prepared_corpus, init_from=str(workdirs["xlnet"]), model__untie_biases=False))


def test_another_vocabulary_is_said(prepared_corpus, tmp_path):
  folder = FIXTURES / "xlnet"
  with pytest.raises(ValueError, match=re.escape(f"config.init_from={folder} has another vocabulary")):
    runs.run(tmp_path / "run", xlnet(prepared_corpus, init_from=str(folder)))


@pytest.mark.parametrize(
  ("change", "said"),
  [
    (lambda written: written | {"family": "encoder"}, "does not describe a model"),
    (lambda written: written | {"family": "rnn"}, "does not describe a model (family='rnn' is unknown)"),
    (lambda written: {k: v for k, v in written.items() if k != "family"}, "does not describe a model"),
    (lambda written: written | {"model": written["model"] | {"num_heads": 3}}, "model.num_heads=3 does not divide"),
    (lambda written: written | {"model": None}, "does not describe a model"),
    (lambda written: [written], "does not describe a model"),
  ],
)
def test_a_workdir_that_does_not_say_what_it_holds(workdirs, tmp_path, change, said):
  folder = shutil.copytree(workdirs["xlnet"], tmp_path / "run")
  path = folder / "config.json"
  path.write_text(json.dumps(change(json.loads(path.read_text()))))
  with pytest.raises(ValueError, match=re.escape(said)) as raised:
    load(folder)
  assert str(raised.value).startswith(str(path))
  assert "\n" not in str(raised.value)
