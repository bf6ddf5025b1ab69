"""The notebooks run from a fresh kernel, top to bottom, and are committed without what a run leaves in them."""

import json
import pathlib
import re
import subprocess
import sys

import nbclient
import nbformat
import numpy as np
import pytest

from colab import install, pictures
from tests import compilation, tasks, text
from training import metrics

ROOT = pathlib.Path(__file__).parent.parent
COLAB = ROOT / "colab"
NOTEBOOKS = ("quickstart", "fine_tuning", "permutations")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def read(name: str) -> nbformat.NotebookNode:
  return nbformat.read(COLAB / f"{name}.ipynb", as_version=4)


@pytest.fixture
def run(monkeypatch):
  """Runs a notebook with other parameters in a kernel of its own; returns it with its outputs."""
  monkeypatch.setenv("XLA_FLAGS", compilation.QUICKLY)  # without conftest's eight devices
  monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "xla"))
  monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

  def run(name: str, **parameters) -> nbformat.NotebookNode:
    notebook = read(name)
    (at,) = [i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
    said = set(re.findall(r"^(\w+) = ", notebook.cells[at].source, flags=re.MULTILINE))
    assert parameters.keys() <= said
    lines = [f"{parameter} = {value!r}" for parameter, value in parameters.items()]
    notebook.cells.insert(at + 1, nbformat.v4.new_code_cell("\n".join(lines)))
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(COLAB)}}).execute()
    return notebook

  return run


def outputs(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
  every = [output for cell in notebook.cells for output in cell.get("outputs", [])]
  if kind == "text":
    return [output.text for output in every if output.output_type == "stream" and output.name == "stdout"]
  return [output.data[kind] for output in every if kind in output.get("data", {})]


def test_every_notebook_is_listed():
  assert {path.stem for path in COLAB.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_committed_without_outputs_and_begins_with_badge_and_set_up(name):
  raw = (COLAB / f"{name}.ipynb").read_text(encoding="utf-8")
  notebook = json.loads(raw)
  nbformat.validate(nbformat.from_dict(notebook))
  assert raw == json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
  assert notebook["metadata"] == {"kernelspec": KERNEL, "language_info": {"name": "python"}}
  first, set_up, *_ = notebook["cells"]
  for cell in notebook["cells"]:
    metadata = (
      {"cellView": "form"} if cell is set_up else {"tags": ["parameters"]} if cell["id"] == "parameters" else {}
    )
    assert cell["metadata"] == metadata
    if cell["cell_type"] == "code":
      assert cell["outputs"] == []
      assert cell["execution_count"] is None
  assert first["source"][0].startswith("[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]")
  assert f"/OWNER/bidir/blob/main/colab/{name}.ipynb)" in first["source"][0]
  assert "".join(set_up["source"]) == read("quickstart").cells[1].source


def test_set_up_clones_and_installs_where_there_is_no_checkout(tmp_path):
  """Once; in the checkout it does nothing."""
  origin, home = tmp_path / "origin", tmp_path / "home"
  (origin / "colab").mkdir(parents=True)
  home.mkdir()
  (origin / "colab" / "install.py").write_text("open('installed', 'a').write('x')")
  git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(origin)]
  for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=all"]):
    subprocess.run([*git, *command], check=True)
  source = read("permutations").cells[1].source
  done = subprocess.run([sys.executable, "-c", source], cwd=home, capture_output=True, text=True)
  assert "put the account that holds the repository in OWNER's place" in done.stderr
  source = re.sub(r"^REPOSITORY = .*$", f"REPOSITORY = {origin.as_uri()!r}", source, flags=re.MULTILINE)
  source += "\nprint(os.getcwd(), sys.path[0] == os.getcwd())"
  for folder in (home, home / "bidir" / "colab"):
    said = subprocess.run([sys.executable, "-c", source], cwd=folder, check=True, capture_output=True, text=True).stdout
    assert said.split() == [str(home / "bidir"), "True"]
  assert (home / "installed").read_text() == "x"


LOCK = "# exact\njax==0.12.0; python_version >= '3.12'\njaxlib==0.12.0; python_version >= '3.12'\nnumpy==2.4.6\n"


@pytest.mark.parametrize(
  ("runtime", "more", "kept"),
  [
    ({"numpy": "2.0.0"}, [], None),
    ({"jax": "0.9.0", "jaxlib": "0.9.0"}, [], None),  # no accelerator: the lock's
    ({"jax": "0.11.1", "jaxlib": "0.11.1", "jax-cuda12-plugin": "0.11.1"}, [], "0.11.1"),
    ({"jax": "0.10.2.dev1", "jaxlib": "0.10.2", "libtpu": "0.0.30"}, [], "0.10.2"),
    ({"jax": "0.9.4", "jaxlib": "0.9.4", "libtpu": "0.0.30"}, ["jax[tpu]"], None),  # older than we can do with
  ],
)
def test_an_accelerators_own_jax_stays_if_it_is_new_enough(runtime, more, kept):
  found = install.plan(runtime, LOCK, "# run time\njax>=0.10.2\nflax>=0.12.8\n")
  pins = LOCK.splitlines()[1:] if kept is None else ["numpy==2.4.6", f"jax=={runtime['jax']}", f"jaxlib=={kept}"]
  assert found == (more, pins)


def test_a_cell_of_a_mask_says_what_is_seen():
  visible = np.array([[1, 0, 1, 0], [1, 1, 1, 1]], bool)
  is_target = np.array([0, 0, 1, 0], bool)
  found = pictures.kinds(visible, is_target, np.array([3, 2]), memory=1)
  names = [[list(pictures.SEEN)[kind] for kind in row] for row in found]
  assert names == [
    ["memory", "not seen", "a target before it in the order", "not seen"],
    ["memory", "context", "itself", "context"],
  ]


def test_permutations(run):
  """Its own check that nothing leaks holds for another text, order and memory, too."""
  notebook = run(
    "permutations",
    ORDER="2 5 1 3 4",
    PREDICTED=3,
    FIRST="a mill stood here .",
    A="it",
    B="burnt",
    NUM_PREDICT=3,
    MEMORY=3,
    DRAWS=3,
    SEED=5,
  )
  assert len(outputs(notebook, "image/png")) == 7
  assert outputs(notebook, "text")[-1] == "of 30 gradients, those are zero that the mask hides, and no others\n"


@pytest.mark.slow
def test_quickstart(run, tmp_path):
  workdir = tmp_path / "run"
  small = {
    "model.hidden_size": 16,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "batch_size": 8,
    "eval_batches": 2,
  }
  notebook = run(
    "quickstart",
    TEXT=str(text.write(tmp_path / "text.txt", 120)),
    VOCAB_SIZE=150,
    STEPS=8,
    WORKDIR=str(workdir),
    SENTENCE="the cat sees the moon",
    BLANKS=["the cat [MASK] the moon", "paris forgets [MASK] [MASK]"],
    CHANGES=small,
  )
  assert [r["step"] for r in metrics.read(workdir / "metrics.jsonl") if r["split"] == "eval"] == list(range(9))
  assert len(outputs(notebook, "image/png")) == 3  # curves, attention, blanks
  assert "bits a byte on held-out text" in "".join(outputs(notebook, "text"))


@pytest.mark.slow
def test_fine_tuning(run, tmp_path):
  notebook = run(
    "fine_tuning",
    CHECKPOINT=str(tasks.FIXTURES / "bert"),
    TASK="mrpc",
    SOURCE=str(tasks.write_official(tmp_path / "glue", "mrpc")),
    EXAMPLES=16,
    LENGTH=24,
    RUNS=str(tmp_path),
    CHANGES={"epochs": 1.0, "batch_size": 8, "data.pack": False},  # one shape to compile
  )
  assert len(outputs(notebook, "image/png")) == 2
  classes, mistakes, own = outputs(notebook, "text/markdown")
  assert [line.split()[1] for line in classes.splitlines()[2:]] == ["0", "1", "*mean*"]
  assert mistakes.startswith("| true | predicted |")
  assert [line.split()[1] for line in own.splitlines()[2:-1]] == ["cooking", "science", "sport"]
  said = "".join(outputs(notebook, "text"))
  predicted = [
    json.loads(line)["prediction"] for line in (tmp_path / "own" / "predicted.jsonl").read_text().splitlines()
  ]
  assert set(predicted) <= {"cooking", "science", "sport"}
  accuracies = [float(x) for x in re.findall(r"^accuracy +(\S+)$", said, flags=re.MULTILINE)]
  diagonals = [
    sum(float(line.split("|")[3]) * int(line.split("|")[5]) for line in table.splitlines()[2:-1])
    for table in (classes, own)
  ]
  np.testing.assert_allclose(accuracies, np.array(diagonals) / 9, atol=2e-3)
