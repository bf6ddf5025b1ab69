"""The geometry of small random models from the command line, against direct calls of the models."""

import dataclasses
import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data import corpora, documents, prepare
from data.corpus import Corpus
from data.pipeline import PairSource
from data.rows import layout, padded, segment_ids
from models.pretraining import PretrainingModel
from models.xlnet import PermutationLM
from pretrained.load import load
from scores import labels as scores
from tests import tasks, text
from tools import cli, features, geometry, geometry_charts, geometry_joint, geometry_measures, geometry_pairs
from tools.families import family_of
from tools.geometry_pairs import Recipe
from training.step import EVAL_SEED

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
LINES = ("Paris is the capital of France.", "the cat sat", "a city is a city", "the", "zebra cat", "the city", "the a")
TEXTS = ("a [zebra cat] is Paris", "the [city] is")
_load = functools.cache(lambda family: load(FIXTURES / family))


@pytest.fixture
def run(monkeypatch, capsys):
  def call(*arguments, family="bert"):
    monkeypatch.setattr("sys.argv", ["geometry", f"--checkpoint={FIXTURES / family}", *map(str, arguments)])
    cli.run(geometry.main)
    return capsys.readouterr().out

  return call


@functools.cache
def encoder(family: str):
  loaded = _load(family)
  apply = jax.jit(PretrainingModel(loaded.config).apply)
  return lambda *row: apply({"params": loaded.params}, *(jnp.asarray(x)[None] for x in row))


@functools.cache
def xlnet():
  loaded = _load("xlnet")

  @jax.jit
  def apply(params, tokens, segments, seen, positions):
    length = len(tokens)
    logits, _ = PermutationLM(loaded.config).apply(
      {"params": params},
      tokens[None],
      segments[None],
      visible=jnp.broadcast_to(seen, (1, length, length)),
      target_positions=positions[None],
      target_visible=jnp.broadcast_to(seen, (1, len(positions), length)),
    )
    return jax.nn.log_softmax(logits[0])

  return functools.partial(apply, loaded.params)


def direct(family: str, row: np.ndarray, positions: np.ndarray, known: list[int]) -> np.ndarray:
  """log P of the pieces at `positions`, from one row alone, where those in `known` are seen."""
  loaded = _load(family)
  hidden = [p for p in positions if p not in known]
  if family == "xlnet":
    seen = np.ones(len(row), bool)
    seen[hidden] = False
    tokens = np.where(seen, row, loaded.tokenizer.pieces.index("▁the"))  # nobody looks
    found = xlnet()(tokens, segment_ids(loaded.tokenizer, len(row) - 2), seen, positions)
  else:
    tokens = row.copy()
    tokens[hidden] = loaded.tokenizer.mask_id
    output = encoder(family)(tokens, np.zeros_like(row), np.ones_like(row), positions)
    found = jax.nn.log_softmax(output.mlm_logits[0])
  return np.asarray(found)[np.arange(len(positions)), row[positions]]


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_a_joint_is_the_product_of_the_models_own(family):
  """zebra has five pieces, which follow one another in an order too."""
  loaded = _load(family)
  found = geometry_joint.joint(loaded, TEXTS[0])
  row = layout(loaded.tokenizer, loaded.tokenizer.encode("a zebra cat is Paris"))
  first = 1 if family == "xlnet" else 2
  positions = np.arange(first, first + 6)
  assert found["pieces"] == [loaded.tokenizer.pieces[i] for i in row[positions]]
  independent = direct(family, row, positions, [])
  np.testing.assert_allclose(found["independent"]["by_word"], [independent[:5].sum(), independent[5]], rtol=1e-5)
  for name, order in (("left_to_right", range(6)), ("right_to_left", range(5, -1, -1))):
    chain, known = np.zeros(6), []
    for i in order:
      chain[i] = direct(family, row, positions, known)[i]
      known.append(positions[i])
    np.testing.assert_allclose(found[name]["by_word"], [chain[:5].sum(), chain[5]], rtol=1e-5)
    assert found[name]["joint"] == pytest.approx(chain.sum(), rel=1e-5)
    assert found[name]["gap"] == pytest.approx(chain.sum() - independent.sum(), abs=1e-3)
    assert abs(found[name]["gap"]) > 0.01


@pytest.mark.parametrize("family", ["bert", "xlnet"])
@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("New York is a city", "put one span in brackets"),
    ("[New] York is a [city]", "put one span in brackets"),
    ("[ ] is a city", "put one span in brackets"),
    ("the ci[ty is] a", "the brackets cut a piece"),
    ("the [Ж] is", "has no pieces for all of 'Ж'"),
  ],
)
def test_spans_that_cannot_be_predicted(family, text, message):
  loaded = _load(family)
  with pytest.raises(ValueError, match=message):
    geometry_joint.find_span(text, loaded.tokenizer, family == "xlnet")


def test_a_span_that_is_too_long_for_the_model():
  with pytest.raises(ValueError, match="32 tokens, more than the model's 24; shorten it"):
    geometry_joint.joint(_load("bert"), "a " * 29 + "[cat]")


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
  return tasks.write_official(tmp_path_factory.mktemp("glue"), "stsb")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  """A corpus of the fixtures' pieces, by family."""
  folder = tmp_path_factory.mktemp("corpus")
  splits = corpora.text_files(
    [str(text.write(folder / "text.txt", 40))], documents.Format(), 0.2, [], str(folder / "tfds")
  )
  made = lambda family: prepare.prepare(folder / family, splits, _load(family).tokenizer, sentence_rule="line")
  return functools.cache(lambda family: (made(family), folder / family)[1])


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_every_measure_of_a_family(run, glue, corpus, family, tmp_path):
  """BERT's are in the test of tables and pictures."""
  lines = tmp_path / "lines.txt"
  lines.write_text("".join(f"{line}\n" for line in LINES))
  arguments = [f"--input={lines}", f"--stsb={glue}", f"--text={TEXTS[1]}", "--max_length=24"]
  if family != "xlnet":
    arguments += [f"--corpus={corpus(family)}", "--pair=sop", "--pairs=20"]
  found = json.loads(run(*arguments, "--json", family=family))

  loaded = _load(family)
  layers = range(loaded.config.num_layers + 1)
  of_lines = found["anisotropy"]["layers"]
  assert found["anisotropy"]["cls_pairs"] == 21
  assert [one["layer"] for one in of_lines] == list(layers)
  assert of_lines[0]["cls"] == pytest.approx([1, 0], abs=1e-6)  # no position, no context
  assert of_lines[0]["tokens"][0] < 0.9
  assert found["anisotropy"]["pieces"] == 1  # "the"
  position = family != "xlnet"  # an encoder's layer 0 knows where a piece stands
  assert (of_lines[0]["same_piece"][0] < 0.999) == position

  examples = geometry.readers.read(geometry.table.find_task("stsb"), glue, "dev")
  gold = [example.label for example in examples]
  texts = [[one] for example in examples for one in example.texts]
  rows = features.make_rows(loaded.tokenizer, texts, 24)
  states = [one["hidden_rep"][:, 0] for one in features.vectors(loaded, rows, [2])]
  last = {"cls": lambda x: x[0 if family == "albert" else -1], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0)}
  for pooling, pool in last.items():
    vectors = np.array([pool(x) / np.linalg.norm(pool(x)) for x in states])
    cosines = np.einsum("pd,pd->p", vectors[::2], vectors[1::2])
    expected = scores.pearson(cosines, gold) | scores.spearman(cosines, gold)
    assert found["pooling"]["layers"][2][pooling] == pytest.approx(expected, abs=2e-3)
  assert found["pooling"]["layers"][0]["cls"] == {"pearson": None, "spearman": None}
  assert (found["pooling"]["pooler"] is None) == (family == "xlnet")

  assert [one["text"] for one in found["joint"]["texts"]] == [TEXTS[1]]
  assert found["joint"]["texts"][0]["left_to_right"]["gap"] == pytest.approx(0)  # one word, one piece
  if family == "xlnet":
    assert list(found["left_out"]) == ["overlap"]
    assert "no head that tells pairs" in found["left_out"]["overlap"]
  else:
    assert found["left_out"] == {}
    assert found["overlap"]["pairs"] == sum(one["pairs"] for one in found["overlap"]["quartiles"]) == 20
  for name in found.keys() & geometry.MEASURES.keys():
    shown = geometry.MEASURES[name].table(found[name])
    assert "nan" not in shown
    assert shown.startswith(name)


def test_pairs_are_the_runs_own(corpus):
  loaded, recipe = _load("bert"), Recipe("nsp", 24, short_rate=0.3)
  found = geometry_pairs.overlap(loaded, str(corpus("bert")), recipe, 30)
  source = PairSource(Corpus.open(corpus("bert"), "heldout"), loaded.tokenizer, 24, EVAL_SEED, short_rate=0.3)
  count = min(30, source.num_rows)
  batch = source.rows(np.arange(count))
  columns = [jnp.asarray(batch[name]) for name in ("tokens", "segment_ids", "sequence_ids")]
  apply = jax.jit(PretrainingModel(loaded.config).apply)
  logits = apply({"params": loaded.params}, *columns, columns[0][:, :1] * 0)
  right = np.asarray(logits.pair_logits).argmax(-1) == batch["pair_label"]
  assert found["pairs"] == count
  assert found["accuracy"][0] == pytest.approx(right.mean())
  for number, name in enumerate(("true_pairs", "false_pairs")):
    assert found[name][0] == pytest.approx(right[batch["pair_label"] == number].mean())
  tokens, end = batch["tokens"][0].tolist(), batch["sequence_ids"][0].sum()
  border = tokens.index(loaded.tokenizer.sep_id)
  a, b = geometry_pairs.segments(batch)[0]
  assert (a.tolist(), b.tolist()) == (tokens[1:border], tokens[border + 1 : end - 1])


def test_pairs_of_an_xlnet(corpus):
  """Read without memory, A <sep> B <sep> <cls>; what pads the row before it is seen by nothing."""
  loaded = _load("xlnet")
  model = PermutationLM(loaded.config, pair=True)
  drawn = np.random.default_rng(0).normal(size=(loaded.config.hidden_size, 27)).astype(np.float32)
  heads = {"pooler": drawn[:, :24], "pair_head": drawn[:, 24:26]}  # of width 24
  params = loaded.params | {name: {"kernel": x, "bias": drawn[: x.shape[1], 26]} for name, x in heads.items()}
  a, b = np.array([9, 12, 11]), np.array([20, 21])
  tokens, segments = layout(loaded.tokenizer, a, b), segment_ids(loaded.tokenizer, 3, 2)
  apply = jax.jit(functools.partial(model.apply, method="with_pair"))
  expected = apply({"params": params}, tokens[None], segments[None], read_positions=np.zeros((1, 1), int)).pair_logits
  rows = padded(loaded.tokenizer, [tokens], [segments], 16)
  found = jax.jit(functools.partial(family_of(loaded.config).pair, loaded.config))(params, rows)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  with_pair = dataclasses.replace(loaded, params=params)
  assert geometry_pairs.overlap(with_pair, str(corpus("xlnet")), Recipe("sop", 24), 16)["pairs"] == 16


def test_a_workdir_says_what_its_pairs_are(tmp_path):
  written = {
    "length": 64,
    "stages": [{"length": 128}, {"length": 512}],
    "objective": {"pair": "sop"},
    "data": {"short_rate": 0.2, "single_sentence": "skip"},
  }
  (tmp_path / "config.json").write_text(json.dumps(written))
  assert geometry_pairs.recipe_of(str(tmp_path)) == Recipe()  # a model folder has such a file, too
  (tmp_path / "checkpoints").mkdir()
  assert geometry_pairs.recipe_of(str(tmp_path)) == Recipe("sop", 512, 0.2, "skip")
  (tmp_path / "config.json").write_text(json.dumps(written | {"stages": [], "objective": {"pair": "none"}}))
  assert geometry_pairs.recipe_of(str(tmp_path))[:2] == ("none", 64)


def test_tables_and_pictures(run, glue, tmp_path):
  pytest.importorskip("matplotlib")
  shown = run(f"--stsb={glue}", f"--text={TEXTS[0]}", f"--output={tmp_path / 'new' / 'out'}")
  assert "pooler" in shown
  assert "18 lines" in shown  # STS-B's sentences, where no other lines are given
  assert "zebra, then cat" in shown
  assert "left out: overlap: nothing says what the pairs were" in shown
  files = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
  assert files == ["anisotropy.png", "joint.png", "pooling.png"]
  quartiles = geometry_measures.by_overlap(np.array([0, 0, 0, 0.5]), np.array([0, 1, 0, 1]), np.arange(4))
  assert geometry_charts.overlap({"pair": "nsp"} | quartiles).axes


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("--measures=joint,isotropy",), "--measures=isotropy is unknown; use of anisotropy, pooling, overlap, joint"),
    (("--measures=pooling,anisotropy",), "--measures=pooling: needs the files of STS-B: --stsb=GLUE"),
    (("--measures=overlap", "--pair=nsp"), "--measures=overlap: needs a prepared corpus"),
    (("--pairs=0",), "--pairs=0 must be at least 1"),
    (("--text=a cat", "--measures=joint"), "'a cat': put one span in brackets"),
  ],
)
def test_mistakes_end_in_a_line(run, capsys, arguments, message):
  with pytest.raises(SystemExit) as stop:
    run(*arguments)
  assert stop.value.code == 1
  assert message in capsys.readouterr().err


def test_a_text_without_a_span_is_told_before_anything_is_measured(run, capsys, tmp_path):
  (tmp_path / "lines.txt").write_text("\n".join(LINES))
  with pytest.raises(SystemExit):
    run(f"--input={tmp_path / 'lines.txt'}", "--text=a cat")
  told = capsys.readouterr()
  assert "'a cat': put one span in brackets" in told.err
  assert not told.out


def test_a_text_that_is_too_long_is_named(run, capsys, glue):
  with pytest.raises(SystemExit):
    run(f"--stsb={glue}", "--max_length=8", "--measures=pooling")
  assert "the sentences of STS-B dev as lines, line" in (said := capsys.readouterr().err)
  assert "more than 8 tokens (--max_length); --truncate cuts off the end" in said
