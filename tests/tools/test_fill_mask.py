"""Filling blanks from the command line, with a small random model."""

import json
import pathlib
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from data.rows import padded, segment_ids
from models.pretraining import PretrainingModel
from models.xlnet import PermutationLM
from pretrained.load import load
from tools import cli, fill_mask

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
FIXTURE, XLNET = str(FIXTURES / "bert"), str(FIXTURES / "xlnet")
TEXTS = ("Paris is the [MASK] of France.", "A [MASK] sat [MASK].")


@pytest.fixture
def run(monkeypatch, capsys):
  def call(*arguments, checkpoint=FIXTURE):
    monkeypatch.setattr("sys.argv", ["fill_mask", f"--checkpoint={checkpoint}", *arguments])
    cli.run(fill_mask.main)
    return capsys.readouterr().out

  return call


def test_the_mask_in_the_text_is_the_mask():
  tokenizer = load(FIXTURE).tokenizer
  pieces = [tokenizer.pieces[i] for i in fill_mask.encode("[MASK] is a ca[MASK] .", tokenizer)]
  assert pieces == ["[CLS]", "[MASK]", "is", "a", "c", "##a", "[MASK]", ".", "[SEP]"]


def test_probabilities_are_the_models():
  """Each text alone and without padding, through the whole model; texts of a batch must not differ from that."""
  loaded = load(FIXTURE)
  results = fill_mask.fill_mask(loaded, TEXTS, top_k=96)
  for text, blanks in zip(TEXTS, results, strict=True):
    tokens = jnp.asarray(fill_mask.encode(text, loaded.tokenizer))[None]
    positions = jnp.flatnonzero(tokens[0] == loaded.tokenizer.mask_id)[None]
    apply = jax.jit(PretrainingModel(loaded.config).apply)
    output = apply({"params": loaded.params}, tokens, tokens * 0, jnp.ones_like(tokens), positions)
    assert len(blanks) == text.count("[MASK]")
    for blank, expected in zip(blanks, jax.nn.softmax(output.mlm_logits[0]), strict=True):
      found = dict(blank)
      assert list(found.values()) == sorted(found.values(), reverse=True)
      np.testing.assert_allclose([found[piece] for piece in loaded.tokenizer.pieces], expected, atol=1e-6)


def test_a_blank_is_the_mask_for_every_family():
  """Nothing is put between a blank and what follows it without white space, as far as the vocabulary can."""
  tokenizer = load(XLNET).tokenizer
  spelled = lambda text: [tokenizer.pieces[i] for i in fill_mask.encode(text, tokenizer)]
  assert spelled("Paris is [MASK] of [MASK].") == ["▁paris", "▁is", "<mask>", "▁of", "<mask>", ".", "<sep>", "<cls>"]
  assert spelled("[MASK]ris, <mask>")[:4] == ["<mask>", "r", "i", "s"]
  assert spelled("[MASK] [MASK]\n7") == ["<mask>", "<mask>", "▁", "7", "<sep>", "<cls>"]
  assert spelled("[MASK]is") == ["<mask>", "▁is", "<sep>", "<cls>"]


def test_an_xlnet_fills_by_its_query_stream():
  """Each blank alone, in a row without padding and by hand: it is the one target, and no blank is seen."""
  loaded = load(XLNET)
  results = fill_mask.fill_mask(loaded, TEXTS, top_k=96)
  pieces = loaded.tokenizer.pieces
  apply = jax.jit(PermutationLM(loaded.config).apply)
  for text, blanks in zip(TEXTS, results, strict=True):
    tokens = fill_mask.encode(text, loaded.tokenizer)
    places = np.flatnonzero(tokens == loaded.tokenizer.mask_id)
    known = tokens != loaded.tokenizer.mask_id
    segment_ids = np.arange(len(tokens)) == len(tokens) - 1  # which two are equal is all that counts
    assert len(blanks) == len(places) == text.count("[MASK]")
    for place, blank in zip(places, blanks, strict=True):
      logits, _ = apply(
        {"params": loaded.params},
        jnp.asarray(tokens)[None],
        jnp.asarray(segment_ids, jnp.int32)[None],
        visible=jnp.tile(known, (1, len(tokens), 1)),
        target_positions=jnp.array([[place]]),
        target_visible=jnp.asarray(known)[None, None],
      )
      found = dict(blank)
      np.testing.assert_allclose([found[piece] for piece in pieces], jax.nn.softmax(logits[0, 0]), atol=1e-6)


def test_what_stands_at_an_xlnets_blank_is_not_read():
  """Bit for bit; what stands beside it is."""
  loaded = load(XLNET)
  rows = [fill_mask.encode(text, loaded.tokenizer) for text in TEXTS]
  segments = [segment_ids(loaded.tokenizer, len(row) - 2) for row in rows]
  columns = padded(loaded.tokenizer, rows, segments)
  is_blank = columns["tokens"] == loaded.tokenizer.mask_id
  expected = fill_mask.probabilities(loaded, columns, is_blank)
  rng = np.random.default_rng(0)
  replaced = lambda where: columns | {"tokens": np.where(where, rng.integers(9, 96, where.shape), columns["tokens"])}
  for _ in range(3):
    other = replaced(is_blank)
    assert (other["tokens"] != columns["tokens"]).sum() == 3
    np.testing.assert_array_equal(fill_mask.probabilities(loaded, other, is_blank), expected)
  np.testing.assert_array_equal(
    fill_mask.probabilities(loaded, replaced(columns["sequence_ids"] == 0), is_blank), expected
  )
  beside = replaced(np.roll(is_blank, 1, axis=1))
  assert np.abs(fill_mask.probabilities(loaded, beside, is_blank) - expected).max() > 1e-3


def test_a_table_or_json(run):
  table = run("--top_k=2", *TEXTS).splitlines()
  assert [line.strip().split()[0] for line in table if line.startswith("  [")] == ["[MASK]", "[MASK]"]
  assert len(table) == 1 + 2 + 1 + (1 + 2) * 2
  lines = [json.loads(line) for line in run("--top_k=2", "--json", *TEXTS).splitlines()]
  assert [line["text"] for line in lines] == list(TEXTS)
  assert [len(line["masks"]) for line in lines] == [1, 2]
  best, second = lines[0]["masks"][0]
  assert best["probability"] > second["probability"]
  assert f"{best['probability']:.4f}  {best['piece']}" in table[1]


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("no blank",), "error: no [MASK] in 'no blank'"),
    (("[MASK] " * 30,), "a text of 32 tokens, more than the model's 24"),
    (("--top_k=0", "[MASK]"), "--top_k=0 must be at least 1"),
  ],
)
def test_mistakes_end_in_a_line(run, capsys, arguments, message):
  with pytest.raises(SystemExit) as stop:
    run(*arguments)
  assert stop.value.code == 1
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(("family", "head"), [("bert", "mlm_head"), ("albert", "mlm_head"), ("xlnet", "lm_head")])
def test_a_model_without_the_head(run, capsys, tmp_path, family, head):
  """Saved as BertModel, AlbertModel or XLNetModel."""
  folder = shutil.copytree(FIXTURES / family, tmp_path / family)
  tensors = load_file(folder / "model.safetensors")
  heads = ("cls.", "predictions.", "sop_classifier.", "lm_loss.")
  save_file({name: x for name, x in tensors.items() if not name.startswith(heads)}, folder / "model.safetensors")
  with pytest.raises(SystemExit):
    run("[MASK]", checkpoint=folder)
  (line,) = capsys.readouterr().err.splitlines()
  assert line == f"error: {folder}: the model has no head that predicts words ({head}), so it cannot fill blanks"


def test_an_xlnet_reads_texts_of_any_length(run):
  table = run("--top_k=1", "a cat " * 300 + "[MASK]", checkpoint=XLNET).splitlines()
  assert len(table) == 2
