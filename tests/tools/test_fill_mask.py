"""Filling blanks from the command line, with a small random model."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.pretraining import PretrainingModel
from pretrained.load import load
from tools import cli, fill_mask

FIXTURE = str(pathlib.Path(__file__).parent.parent / "fixtures" / "bert")
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


def test_a_model_without_the_head(run, capsys, monkeypatch):
  monkeypatch.setattr(fill_mask, "load", lambda path: load(FIXTURE).__class__(None, {}, None, ("mlm_head",)))
  with pytest.raises(SystemExit):
    run("[MASK]")
  assert f"error: {FIXTURE}: the model has no masked-word head" in capsys.readouterr().err
