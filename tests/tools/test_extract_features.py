"""Vectors from the command line, with small random models; tests/parity compares them with another library's."""

import dataclasses
import functools
import io
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from array_record.python import array_record_module

from models.pretraining import PretrainingModel
from models.xlnet import PermutationLM
from pretrained.load import load
from tools import cli, extract_features, features
from tools.families import family_of

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
# Of many lengths, so that order, padding and batches matter.
LINES = [
  "Paris is the capital of France.",
  "the",
  "a cat sat ||| the city is a capital",
  "a city is a city is a city",
  "zebra cat",
  "sat ||| sat",
]


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
  """Runs the command on lines and returns the output's path."""

  def call(*arguments, family="bert", lines=LINES, suffix=".npz"):
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output = tmp_path / "out" / f"vectors{suffix}"
    command = [f"--checkpoint={FIXTURES / family}", f"--input={tmp_path / 'lines.txt'}", f"--output={output}"]
    monkeypatch.setattr("sys.argv", ["extract_features", *command, *arguments])
    cli.run(extract_features.main)
    return output

  return call


@functools.cache
def opened(family: str):
  """(the fixture, the compiled function of a row that gives its states and the pooler's output, None without)."""
  loaded = load(FIXTURES / family)
  if family == "xlnet":
    apply = jax.jit(
      lambda *row: PermutationLM(loaded.config).apply(
        {"params": loaded.params}, *row, every_layer=True, method="hidden"
      )
    )
    return loaded, lambda tokens, segment_ids, _: (apply(tokens, segment_ids).content[:, 0], None)
  model = PretrainingModel(loaded.config)

  @jax.jit
  def forward(*row):
    hidden = model.apply({"params": loaded.params}, *row, method="hidden")
    return hidden[:, 0], model.apply({"params": loaded.params}, hidden[-1], method="pool")[0]

  return loaded, forward


def alone(family: str, line: str) -> tuple[np.ndarray, np.ndarray | None, list[str]]:
  """(states [layers + 1, length, width], pooler's output [width], pieces) of one line, without padding."""
  loaded, forward = opened(family)
  tokenizer = loaded.tokenizer
  cls_last = family == "xlnet"
  ids, segments = ([], []) if cls_last else ([tokenizer.cls_id], [0])
  for segment, text in enumerate(line.split(" ||| ")):
    new = [*tokenizer.encode(text), tokenizer.sep_id]
    ids, segments = ids + new, segments + [segment] * len(new)
  if cls_last:
    ids, segments = [*ids, tokenizer.cls_id], [*segments, 2]
  states, pooled = forward(jnp.array([ids]), jnp.array([segments]), jnp.ones((1, len(ids)), jnp.int32))
  return np.asarray(states), None if pooled is None else np.asarray(pooled), [tokenizer.pieces[i] for i in ids]


POOL = {"cls": lambda x: x[:, 0], "mean": lambda x: x.mean(axis=1), "max": lambda x: x.max(axis=1)}
FAMILIES = ("bert", "albert", "xlnet")
ATOL = 5e-5  # of float32 vectors of size 1, from products in rows of another length


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", POOL)
def test_pooled_vectors_are_the_models(run, family, pooling):
  """Each line alone, whatever the batch around it; two layers side by side, as named."""
  found = np.load(run(f"--pooling={pooling}", "--layers=-1,1", family=family))
  assert found["layers"].tolist() == [-1, 1]
  states = [alone(family, line)[0] for line in LINES]
  pool = POOL[pooling] if (family, pooling) != ("xlnet", "cls") else lambda x: x[:, -1]
  expected = np.stack([pool(x[[-1, 1]]).ravel() for x in states])
  np.testing.assert_allclose(found["embeddings"], expected, atol=ATOL)
  unit = np.load(run(f"--pooling={pooling}", "--layers=-1,1", "--normalize", family=family))["embeddings"]
  np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=ATOL)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_of_every_token(run, family):
  found = np.load(run("--layers=all", family=family))
  states, pooled, pieces = zip(*[alone(family, line) for line in LINES], strict=True)
  assert found["layers"].tolist() == list(range(len(states[0])))
  assert found["offsets"].tolist() == np.cumsum([0, *map(len, pieces)]).tolist()
  np.testing.assert_allclose(found["hidden_rep"], np.concatenate([x.swapaxes(0, 1) for x in states]), atol=ATOL)
  if family == "xlnet":
    assert "cls_head" not in found
  else:
    np.testing.assert_allclose(found["cls_head"], np.stack(pooled), atol=ATOL)
  assert found["pieces"].tolist() == [piece for some in pieces for piece in some]
  start, stop = found["offsets"][2:4]
  segments = [0] * 4 + [1] * 6 + [2] if family == "xlnet" else [0] * 5 + [1] * 6
  assert found["segment_ids"][start:stop].tolist() == segments
  vocabulary = opened(family)[0].tokenizer.pieces
  assert [vocabulary[i] for i in found["tokens"]] == found["pieces"].tolist()


def test_json_lines_are_the_originals(run):
  """The keys of BERT's extract_features.py, in its order and with its spelling and decimals."""
  lines = [json.loads(line) for line in run("--layers=-1,-2", suffix=".jsonl").read_text().splitlines()]
  assert [line["linex_index"] for line in lines] == list(range(len(LINES)))
  for text, line in zip(LINES, lines, strict=True):
    states, pooled, pieces = alone("bert", text)
    assert list(line) == ["linex_index", "features", "cls_head"]
    assert [one["token"] for one in line["features"]] == pieces
    for i, one in enumerate(line["features"]):
      assert list(one) == ["token", "layers"]
      assert [list(layer) for layer in one["layers"]] == [["index", "values"]] * 2
      assert [layer["index"] for layer in one["layers"]] == [-1, -2]
      np.testing.assert_allclose([layer["values"] for layer in one["layers"]], states[[-1, -2], i], atol=ATOL)
      assert all(round(x, 6) == x for layer in one["layers"] for x in layer["values"])
    np.testing.assert_allclose(line["cls_head"], pooled, atol=ATOL)


def read_records(path) -> list[dict]:
  reader = array_record_module.ArrayRecordReader(str(path))
  records = [dict(np.load(io.BytesIO(record))) for record in reader.read_all()]
  reader.close()
  return records


@pytest.mark.parametrize("arguments", [("--layers=0,2",), ("--words=mean",), ("--pooling=mean",)])
def test_the_three_formats_agree(run, arguments):
  whole = dict(np.load(run(*arguments)))
  records = read_records(run(*arguments, suffix=".array_record"))
  lines = [json.loads(line) for line in run(*arguments, suffix=".jsonl").read_text().splitlines()]
  assert len(records) == len(lines) == len(LINES)
  offsets = whole.pop("offsets", None)
  for i, (record, line) in enumerate(zip(records, lines, strict=True)):
    assert record.keys() == whole.keys()
    for name, x in whole.items():
      if name != "layers":
        x = x[i] if name in ("embeddings", "cls_head") else x[offsets[i] : offsets[i + 1]]
      np.testing.assert_array_equal(record[name], x)
    if "features" in line:
      values = [[layer["values"] for layer in one["layers"]] for one in line["features"]]
      np.testing.assert_allclose(values, record["hidden_rep"], atol=1e-6)
      assert [one["token"] for one in line["features"]] == record.get("words", record.get("pieces")).tolist()
    else:
      np.testing.assert_allclose(line["embeddings"], record["embeddings"], atol=1e-6)


@pytest.mark.parametrize("how", features.WORDS)
def test_words(run, how):
  """zebra is z ##e ##b ##r ##a behind [CLS]; a pair's second text begins behind its [SEP]."""
  found = np.load(run(f"--words={how}"))
  assert found["words"].tolist() == [word for line in LINES for word in line.replace("|||", "").split()]
  start = found["offsets"][4]
  states, _, pieces = alone("bert", "zebra cat")
  assert pieces == ["[CLS]", "z", "##e", "##b", "##r", "##a", "cat", "[SEP]"]
  expected = [states[-1, 1] if how == "first" else states[-1, 1:6].mean(axis=0), states[-1, 6]]
  np.testing.assert_allclose(found["hidden_rep"][start : start + 2, 0], np.stack(expected), atol=ATOL)
  states, pooled, _ = alone("bert", "sat ||| sat")
  np.testing.assert_allclose(found["hidden_rep"][-2:, 0], states[-1, [1, 3]], atol=ATOL)
  assert found["segment_ids"][-2:].tolist() == [0, 1]
  np.testing.assert_allclose(found["cls_head"][-1], pooled, atol=ATOL)


def test_words_of_an_xlnet(run):
  """Its rows begin with the first word; zebra is ▁z e b r a. The line is padded to the length of the longest."""
  found = np.load(run("--words=mean", family="xlnet", lines=["a city is a city is a city", "zebra cat ||| sat"]))
  states, _, pieces = alone("xlnet", "zebra cat ||| sat")
  assert pieces == ["▁z", "e", "b", "r", "a", "▁cat", "<sep>", "▁sat", "<sep>", "<cls>"]
  expected = [states[-1, :5].mean(axis=0), states[-1, 5], states[-1, 7]]
  np.testing.assert_allclose(found["hidden_rep"][-3:, 0], np.stack(expected), atol=ATOL)
  assert found["words"][-3:].tolist() == ["zebra", "cat", "sat"]
  assert found["segment_ids"][-3:].tolist() == [0, 0, 1]


def test_an_xlnet_reads_lines_of_any_length(run, capsys):
  """It has no table of positions; 512 is what is asked for before a line counts as long."""
  line = "a city " * 300
  with pytest.raises(SystemExit):
    run(family="xlnet", lines=[line])
  assert "line 1: more than 512 tokens (--max_length); --truncate" in capsys.readouterr().err
  found = np.load(run("--max_length=602", "--pooling=mean", family="xlnet", lines=["a cat", line]))["embeddings"]
  for text, vector in zip(("a cat", line), found, strict=True):
    np.testing.assert_allclose(vector, alone("xlnet", text)[0][-1].mean(axis=0), atol=ATOL)
  with pytest.raises(SystemExit):
    run("--max_length=7", family="xlnet")
  assert "--max_length=7 must be at least 8" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_the_model_decides_the_layout_and_not_its_vocabulary(family):
  """An XLNet may have been trained with WordPiece, and BERT with a vocabulary that XLNet's tokenizer made."""
  loaded, other = opened(family)[0], opened("xlnet" if family == "bert" else "bert")[0]
  mixed = dataclasses.replace(loaded, tokenizer=other.tokenizer)
  cls_last = family_of(loaded.config).cls_last
  texts = [["a cat"], ["a city is a city", "the cat"]]
  rows = features.make_rows(mixed.tokenizer, texts, 24, cls_last=cls_last)
  for row in rows:
    assert (row.tokens == mixed.tokenizer.cls_id).tolist() == [
      i == (len(row.tokens) - 1 if cls_last else 0) for i in range(len(row.tokens))
    ]
    assert row.segment_ids[-1] == (2 if cls_last else row is rows[1])
  for row, one in zip(rows, features.vectors(mixed, rows, [2]), strict=True):
    states, _ = opened(family)[1](*(jnp.asarray(x)[None] for x in (row.tokens, row.segment_ids, row.tokens * 0 + 1)))
    np.testing.assert_allclose(one["hidden_rep"][:, 0], states[-1], atol=ATOL)


def test_windows_change_nothing(run, monkeypatch):
  """Results are written line by line in order, however few may wait and however few lines are read at once."""
  expected = dict(np.load(run("--layers=all")))
  monkeypatch.setattr(features, "_ENCODED_AT_ONCE", 2)
  monkeypatch.setattr(features, "_WINDOW", 700)
  found = dict(np.load(run("--layers=all", "--batch_tokens=32")))
  assert found.keys() == expected.keys()
  for name, x in expected.items():
    if x.dtype == np.float32:
      np.testing.assert_allclose(found[name], x, atol=ATOL)
    else:
      np.testing.assert_array_equal(found[name], x)


def test_batches_have_few_shapes_and_little_padding():
  lengths = np.clip(np.random.default_rng(0).lognormal(3.2, 0.6, 5000).astype(int), 3, 500)
  plan = list(features.batches(lengths, 2048, 512, shrink=True))
  assert sorted(np.concatenate([rows for rows, *_ in plan]).tolist()) == list(range(5000))
  for rows, length, slots in plan:
    assert len(rows) <= slots
    assert lengths[rows].max() <= length
    assert length * slots <= 2048
  assert len({shape for _, *shape in map(tuple, plan) for shape in [tuple(shape)]}) <= 11
  assert sum(length * slots for _, length, slots in plan) < 1.25 * lengths.sum()
  full = list(features.batches(lengths, 2048, 512, shrink=False))
  assert {2048 // length for _, length, _ in full} == {slots for *_, slots in full}
  [(_, length, slots)] = features.batches(np.array([5, 3, 4]), 2048, 24, shrink=True)
  assert (length, slots) == (16, 4)


def test_one_compilation_a_shape():
  loaded = opened("bert")[0]
  forward = features.make_forward(loaded.config, (2,), "mean", False)
  texts = [["a"], ["a cat"], ["the city is a city"], ["the city is a city " * 4]]
  rows = features.make_rows(loaded.tokenizer, texts * 9, 24)
  lengths = np.array([len(row.tokens) for row in rows])
  plan = list(features.batches(lengths, 64, 24, shrink=False))
  for batch in plan:
    features._run(forward, loaded.params, loaded.tokenizer, family_of(loaded.config), rows, batch)
  assert len(plan) > 2
  assert {(length, slots) for _, length, slots in plan} == {(24, 2), (16, 4)}
  assert forward._cache_size() == 2


def test_what_truncate_cuts(run):
  """A text loses its end, the longer of a pair first; a word without pieces is gone, one cut in two stays."""
  lines = ["a cat sat a cat sat a cat", "a a a a a a a a ||| cat sat", "the zebra sat a a"]
  found = np.load(run("--truncate", "--max_length=8", lines=lines))
  pieces = [found["pieces"][a:b].tolist() for a, b in zip(found["offsets"], found["offsets"][1:], strict=False)]
  assert pieces == [
    ["[CLS]", "a", "cat", "sat", "a", "cat", "sat", "[SEP]"],
    ["[CLS]", "a", "a", "a", "[SEP]", "cat", "sat", "[SEP]"],
    ["[CLS]", "the", "z", "##e", "##b", "##r", "##a", "[SEP]"],
  ]
  found = np.load(run("--truncate", "--max_length=8", "--words=mean", lines=[lines[1], "the the zebra sat"]))
  assert found["words"].tolist() == ["a", "a", "a", "cat", "sat", "the", "the", "zebra"]
  states, _, _ = alone("bert", "the the zebr")
  assert found["hidden_rep"].shape == (8, 1, 32)
  np.testing.assert_allclose(found["hidden_rep"][-1, 0], states[-1, 3:7].mean(axis=0), atol=ATOL)


def test_words_alone_have_the_pieces_of_the_text(run):
  tokenizer = opened("bert")[0].tokenizer
  texts = [["The  cat's zebra, (a) city!"], ["Is a", "b-c."]]
  whole = features.make_rows(tokenizer, texts, 24)
  by_words = features.make_rows(tokenizer, texts, 24, by_words=True)
  for a, b in zip(whole, by_words, strict=True):
    np.testing.assert_array_equal(a.tokens, b.tokens)
    np.testing.assert_array_equal(a.segment_ids, b.segment_ids)


@pytest.mark.parametrize(
  ("lines", "arguments", "message"),
  [
    (["a", "", "b"], (), "lines.txt, line 2: no text that a token stands for"),
    ([], (), "lines.txt, no lines"),
    (["a", "a |||", "||| b"], (), "lines.txt, lines 2, 3: no text"),
    (["a ||| b ||| c"], (), "lines.txt, line 1: 3 texts; a line holds one, or two with ||| between"),
    (["a \u200b cat"], ("--words=first",), "line 1: a word that no token stands for"),
    (
      ["a", "a " * 23] + ["b " * 23] * 6,
      (),
      "lines 2, 3, 4, 5, 6 and 2 more: more than 24 tokens (--max_length); --truncate",
    ),
    (["a"], ("--layers=3",), "--layers=3: this model has layers 0 to 2, counted from the end -1 to -3"),
    (["a"], ("--layers=last",), "--layers=last is neither all nor numbers"),
    (["a"], ("--normalize",), "--normalize goes with --pooling=cls, mean or max"),
    (["a"], ("--words=mean", "--pooling=cls"), "--words gives a vector a word; it goes with --pooling=none"),
    (["a"], ("--max_length=25",), "--max_length=25 must lie in 8 to the model's 24"),
    (["a"], ("--batch_tokens=0",), "--batch_tokens=0 must be at least 1"),
  ],
)
def test_mistakes_end_in_a_line(run, capsys, tmp_path, lines, arguments, message):
  with pytest.raises(SystemExit) as stop:
    run(*arguments, lines=lines)
  assert stop.value.code == 1
  assert message in capsys.readouterr().err
  assert not (tmp_path / "out").exists()


def test_the_first_token_of_a_left_to_right_model_says_nothing_of_a_text(run, capsys, monkeypatch):
  loaded = opened("bert")[0]
  causal = dataclasses.replace(loaded, config=dataclasses.replace(loaded.config, causal=True))
  monkeypatch.setattr(extract_features, "load", lambda *_, **__: causal)
  with pytest.raises(SystemExit):
    run("--pooling=cls", lines=["a"])
  assert "--pooling=cls: the first token of a left-to-right model sees no other" in capsys.readouterr().err


def test_files_that_do_not_fit(run, capsys, monkeypatch, tmp_path):
  with pytest.raises(SystemExit):
    run(suffix=".txt")
  assert "must end in one of .npz, .jsonl, .array_record" in capsys.readouterr().err
  path = tmp_path / "latin.txt"
  path.write_bytes("a\nnaïve\n".encode("latin-1"))
  with pytest.raises(ValueError, match="line 2: not UTF-8"):
    list(extract_features.read_lines(str(path)))


def test_a_model_without_a_pooler(monkeypatch):
  loaded = opened("bert")[0]
  params = {"encoder": loaded.params["encoder"]}
  bare = loaded.__class__(loaded.config, params, loaded.tokenizer, ("pooler", "mlm_head", "pair_head"))
  rows = features.make_rows(loaded.tokenizer, [["a cat"]], 24)
  [one] = features.vectors(bare, rows, [2])
  assert one.keys() == {"hidden_rep"}
  assert jax.tree.map(np.shape, one) == {"hidden_rep": (4, 1, 32)}
