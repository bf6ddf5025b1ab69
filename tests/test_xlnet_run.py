"""A tiny XLNet end to end: from text with ends of documents to metrics, with memory, on several meshes, and resumed."""

import shutil

import numpy as np
import pytest
from ml_collections import ConfigDict

from configs import quickstart
from data import corpora, documents, prepare, sentencepiece, sentencepiece_training
from data.corpus import Corpus
from data.streams import StreamSource
from data.tokenizers import load_tokenizer
from tests import runs, text

pytestmark = pytest.mark.slow  # compiles for minutes: `make slow`

NUMBERS = ("loss", "plm_loss", "plm_accuracy")
STILL = {"model__hidden_dropout": 0.0, "model__attention_dropout": 0.0, "model__ffn_dropout": 0.0}


@pytest.fixture(scope="module")
def xlnet_corpus(tmp_path_factory):
  """As `prepared_corpus`, with a SentencePiece vocabulary of XLNet's, which has an end-of-document piece."""
  folder = tmp_path_factory.mktemp("prepared")
  files = [str(text.write(folder / "text.txt", 120))]
  splits = corpora.text_files(files, documents.Format(), 0.1, [], str(folder / "tfds"))
  model = sentencepiece_training.train(splits[corpora.TRAIN], sentencepiece.FAMILIES["xlnet"], 150, lowercase=True)
  tokenizer = sentencepiece.SentencePiece(model, lowercase=True)
  prepare.prepare(folder / "corpus", splits, tokenizer, sentence_rule="line")
  return folder / "corpus"


def config(corpus, **fields):
  """Returns a run of six steps of a tiny XLNet with memory and dropout; `fields` as `runs.config` has them."""
  c = quickstart.get_config("xlnet")
  c.steps, c.batch_size, c.length = 6, 8, 32
  c.log_every, c.eval_every, c.eval_batches, c.checkpoint_every = 1, 3, 2, 2
  c.data.corpus = str(corpus)
  c.data.reuse_len = c.objective.perm_size = 16
  c.objective.num_predict = 8
  c.model.hidden_size, c.model.num_heads, c.model.intermediate_size, c.model.mem_len = 32, 2, 64, 16
  c.model.hidden_dropout = c.model.attention_dropout = c.model.ffn_dropout = 0.1
  c.optimizer.warmup_steps = 2
  c.optimizer.decay = "constant"  # so that a shorter run is the beginning of a longer one
  c.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
  return c


@pytest.fixture(scope="module")
def straight(xlnet_corpus, tmp_path_factory):
  """The workdir of an uninterrupted run on one device, dropout on."""
  workdir = tmp_path_factory.mktemp("straight")
  runs.run(workdir, config(xlnet_corpus))
  return workdir


@pytest.fixture(scope="module")
def still(xlnet_corpus, tmp_path_factory):
  """The records of a run on one device without dropout."""
  return runs.run(tmp_path_factory.mktemp("still"), config(xlnet_corpus, **STILL))


def assert_close(a: list[dict], b: list[dict]) -> None:
  assert [(r["step"], r["split"]) for r in a] == [(r["step"], r["split"]) for r in b]
  for x, y in zip(a, b, strict=True):
    np.testing.assert_allclose([x[n] for n in NUMBERS], [y[n] for n in NUMBERS], rtol=2e-4, err_msg=str(x["step"]))


def test_the_log_holds_the_contracts_metrics(straight):
  records = runs.series(straight)
  assert [r["step"] for r in records if r["split"] == "eval"] == [0, 3, 6]
  train, held_out = records[1], records[-1]
  assert {*NUMBERS, "learning_rate", "gradient_norm", "target_shortfall"} <= train.keys()
  quarters = {f"plm_loss_quarter_{i}" for i in (1, 2, 3, 4)}
  assert {*NUMBERS, *quarters, "unigram_loss", "most_frequent_accuracy", "bits_per_byte"} <= held_out.keys()
  assert {r["unigram_loss"] for r in records if r["split"] == "eval"} == {held_out["unigram_loss"]}  # the same targets


def test_rows_hold_ends_of_documents(xlnet_corpus):
  tokenizer = load_tokenizer(xlnet_corpus / "tokenizer")
  source = StreamSource(Corpus.open(xlnet_corpus, "train"), tokenizer, 32, 8, reuse_len=16, seed=0, mem_len=16)
  assert (source.batch(0)["tokens"] == tokenizer.eod_id).any()


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(straight, xlnet_corpus, tmp_path, capsys):
  begun, resume = tmp_path / "begun", config(xlnet_corpus)
  runs.run(begun, config(xlnet_corpus, steps=4))
  forgetful = shutil.copytree(begun, tmp_path / "forgetful")
  whole = runs.series(straight)
  resumed = lambda workdir: [r for r in runs.run(workdir, resume) if (r["step"], r["split"]) != (4, "eval")]
  assert resumed(begun) == whole
  assert "memory" not in capsys.readouterr().err
  shutil.rmtree(forgetful / "checkpoints" / "4" / "carry")
  records = resumed(forgetful)
  assert "checkpoint 4 holds no memory" in capsys.readouterr().err
  assert records[:-3] == whole[:-3]
  assert records[-3]["plm_loss"] != whole[-3]["plm_loss"]  # step 5 reads what is remembered of step 4


@pytest.mark.parametrize("mesh", [{"mesh__data": 2}, {"mesh__data": 1, "mesh__fsdp": 2}], ids=["data", "fsdp"])
def test_meshes_agree(still, xlnet_corpus, tmp_path, mesh):
  assert_close(runs.run(tmp_path, config(xlnet_corpus, **mesh, **STILL), devices=2), still)


def test_micro_batches_equal_the_whole_batch(still, xlnet_corpus, tmp_path):
  assert_close(runs.run(tmp_path, config(xlnet_corpus, accumulate=2, **STILL)), still)


def test_another_length_of_memory_is_said_in_one_line(straight, xlnet_corpus, tmp_path, capsys):
  workdir = shutil.copytree(straight, tmp_path / "run")
  capsys.readouterr()
  records = runs.run(workdir, config(xlnet_corpus, steps=7, model__mem_len=24))
  assert records[-1]["step"] == 7
  (line,) = capsys.readouterr().err.splitlines()
  assert "checkpoint 6 holds a memory of another shape" in line


def test_two_stages_in_bfloat16_with_remat(still, xlnet_corpus, tmp_path):
  stages = tuple(ConfigDict({"steps": 2, "length": length, "batch_size": rows}) for length, rows in ((32, 8), (48, 4)))
  fields = {"stages": stages, "eval_every": 100, "model__dtype": "bfloat16", "model__remat": "full", **STILL}
  staged = lambda steps: config(xlnet_corpus, steps=steps, **fields)
  runs.run(tmp_path, staged(3))
  records = runs.run(tmp_path, staged(4))
  exact = {(r["step"], r["split"]): r["loss"] for r in still}
  for record in records[:3]:  # before the first step, and the first stage
    assert record["loss"] == pytest.approx(exact[record["step"], record["split"]], rel=0.02)
  assert [r["step"] for r in records if r["split"] == "train"] == [1, 2, 3, 4]
  assert all(np.isfinite(record["loss"]) for record in records)
