"""A tiny BERT end to end: from prepared text to metrics, on several meshes, resumed, and given bad input."""

import json
import re
import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator

from tests import runs

NUMBERS = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy")


@pytest.fixture(scope="module")
def straight(prepared_corpus, tmp_path_factory):
  """The workdir of an uninterrupted run on one device, dropout on."""
  workdir = tmp_path_factory.mktemp("straight")
  runs.run(workdir, runs.config(prepared_corpus))
  return workdir


def assert_close(a: list[dict], b: list[dict]) -> None:
  assert [(r["step"], r["split"]) for r in a] == [(r["step"], r["split"]) for r in b]
  for x, y in zip(a, b, strict=True):
    np.testing.assert_allclose([x[n] for n in NUMBERS], [y[n] for n in NUMBERS], rtol=2e-4, err_msg=str(x["step"]))


def test_the_log_holds_the_contracts_metrics(straight):
  records = runs.series(straight)
  assert [(r["step"], r["split"]) for r in records if r["split"] == "eval"] == [(0, "eval"), (3, "eval"), (6, "eval")]
  train, held_out = records[1], records[-1]
  assert {*NUMBERS, "learning_rate", "gradient_norm", "mask_shortfall"} <= train.keys()
  assert {*NUMBERS, "unigram_loss", "most_frequent_accuracy", "bits_per_byte", "nsp_positive"} <= held_out.keys()
  assert train["loss"] == pytest.approx(train["mlm_loss"] + train["nsp_loss"], rel=1e-6)
  assert {r["unigram_loss"] for r in records if r["split"] == "eval"} == {held_out["unigram_loss"]}  # the same targets
  board = event_accumulator.EventAccumulator(str(straight / "tensorboard")).Reload()
  assert [e.step for e in board.Scalars("train/mlm_loss")] == [1, 2, 3, 4, 5, 6]


def test_bits_per_byte_is_the_loss_over_the_bytes_of_the_targets(straight):
  held_out = runs.series(straight)[-1]
  bytes_per_target = held_out["mlm_loss"] / np.log(2) / held_out["bits_per_byte"]
  assert 1 < bytes_per_target < 6  # pieces of the made-up text are a few letters long


@pytest.mark.parametrize(
  ("mesh", "devices"),
  [({"mesh__data": 2}, 2), pytest.param({"mesh__data": 1, "mesh__fsdp": 4}, 4, marks=pytest.mark.slow)],
)
def test_meshes_agree_with_dropout_on(straight, prepared_corpus, tmp_path, mesh, devices):
  assert_close(runs.run(tmp_path, runs.config(prepared_corpus, **mesh), devices), runs.series(straight))


def test_micro_batches_equal_the_whole_batch(prepared_corpus, tmp_path):
  still = {"model__hidden_dropout": 0.0, "model__attention_dropout": 0.0}
  whole = runs.run(tmp_path / "whole", runs.config(prepared_corpus, **still))
  assert_close(runs.run(tmp_path / "parts", runs.config(prepared_corpus, accumulate=4, **still)), whole)


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(straight, prepared_corpus, tmp_path):
  runs.run(tmp_path, runs.config(prepared_corpus))
  shutil.rmtree(tmp_path / "checkpoints" / "6")  # as if killed before it was saved
  records = runs.run(tmp_path, runs.config(prepared_corpus))
  assert records == runs.series(straight)


def test_whole_words_and_no_pairs_are_fields(prepared_corpus, tmp_path):
  records = runs.run(
    tmp_path, runs.config(prepared_corpus, objective__pair="none", objective__masking__whole_word=True)
  )
  assert "nsp_loss" not in records[-1]
  assert records[-1]["loss"] == records[-1]["mlm_loss"]


def test_sentence_order_and_ngrams_are_fields(prepared_corpus, tmp_path):
  trigrams = {"objective__masking__whole_word": True, "objective__masking__ngram": 3}
  records = runs.run(tmp_path, runs.config(prepared_corpus, objective__pair="sop", **trigrams))
  assert {"sop_loss", "sop_accuracy", "sop_positive"} <= records[1].keys() & records[-1].keys()
  assert not any(name.startswith("nsp") for record in records for name in record)
  assert records[-1]["loss"] == pytest.approx(records[-1]["mlm_loss"] + records[-1]["sop_loss"], rel=1e-6)


def test_a_profile_is_written(prepared_corpus, tmp_path, capsys):
  runs.run(tmp_path, runs.config(prepared_corpus, profile_steps=(2, 4)))
  said = capsys.readouterr().out
  assert "profile of steps 2 to 4" in said
  assert "nothing is traced" not in said
  assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_the_workdir_holds_its_tokenizer_and_its_vocabulary_size(straight, prepared_corpus):
  vocabulary = (prepared_corpus / "tokenizer" / "vocab.txt").read_bytes()
  assert (straight / "tokenizer" / "vocab.txt").read_bytes() == vocabulary
  config = json.loads((straight / "config.json").read_text())
  assert config["model"]["vocab_size"] == len(vocabulary.splitlines())


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"data__corpus": ""}, "config.data.corpus is empty"),
    ({"data__corpus": "/nowhere"}, "/nowhere: no such corpus; prepare it with `python -m tools.prepare_corpus`"),
    ({"model__vocab_size": 10}, "pieces and config.model.vocab_size=10; set it to at least that"),
    ({"length": 64}, "length 64 and config.model.max_length=32"),
    ({"model__num_heads": 5}, "num_heads=5"),
    ({"model__activation": "swish"}, "swish"),
    ({"objective__pair": "rtd"}, "objective.pair='rtd' is unknown; use one of nsp, sop, none"),
    ({"data__single_sentence": "join"}, "single_sentence='join' is unknown; use one of split, skip, random"),
    ({"objective__dropout_prng": "dice"}, "dropout_prng='dice'"),
    ({"objective__masking__ngram": 0}, "objective.masking.ngram=0 must be at least 1"),
    ({"objective__masking__ngram_favor": "odd"}, "objective.masking.ngram_favor='odd' is unknown; use one of short,"),
    ({"optimizer__name": "sgd"}, "optimizer.name='sgd'"),
    ({"steps": 0}, "config.steps=0 must be at least 1"),
    ({"accumulate": 3}, "batch_size=8 is not divisible by 1 devices × accumulate=3"),
    ({"accumulate": 0}, "accumulate=0"),
    ({"log_every": 0}, "log_every=0"),
    ({"eval_batches": 0}, "eval_batches=0"),
    ({"profile_steps": (4,)}, "profile_steps=(4,)"),
    ({"profile_steps": (-2, 1)}, "profile_steps=(-2, 1)"),
    ({"keep_best": -1}, "config.keep_best=-1 must be at least 0"),
    ({"optimizer__b1": 1.0}, "config.optimizer.b1=1.0 must be at least 0 and below 1"),
    ({"seed": -1}, "seed=-1"),
    ({"init_from": "/nowhere"}, "/nowhere"),
  ],
)
def test_a_field_that_makes_no_sense_is_named_in_one_line_and_nothing_is_written(
  prepared_corpus, tmp_path, fields, said
):
  with pytest.raises((ValueError, OSError), match=re.escape(said)) as raised:
    runs.run(tmp_path / "run", runs.config(prepared_corpus, **fields))
  assert len(str(raised.value).splitlines()) == 1
  assert not (tmp_path / "run").exists()


def test_a_corpus_may_move_and_another_text_is_refused_by_name(prepared_corpus, tmp_path):
  moved = shutil.copytree(prepared_corpus, tmp_path / "moved")
  workdir = tmp_path / "run"
  runs.run(workdir, runs.config(prepared_corpus, steps=2))
  runs.run(workdir, runs.config(moved, steps=3))
  counts = np.load(moved / "train.counts.npy")
  first, second = np.flatnonzero(counts)[-2:]
  counts[[first, second]] = counts[[second, first]] + [0, 1]  # of another text: nothing else tells
  np.save(moved / "train.counts.npy", counts)
  with pytest.raises(ValueError, match=r"holds another run: data\.corpus_fingerprint is \w+ there and \w+ here"):
    runs.run(workdir, runs.config(moved, steps=4))


def test_a_run_starts_from_another_runs_weights(straight, prepared_corpus, tmp_path):
  before = runs.series(straight)[-1]
  after = runs.run(tmp_path, runs.config(prepared_corpus, init_from=str(straight)))[0]
  assert after["step"] == 0
  assert [after[name] for name in NUMBERS] == pytest.approx([before[name] for name in NUMBERS], rel=1e-5)


def test_weights_that_do_not_fit_are_refused_by_name(straight, prepared_corpus, tmp_path):
  with pytest.raises(ValueError, match=r"config\.init_from: config\.model\.intermediate_size is \d+ there and 128"):
    runs.run(tmp_path / "run", runs.config(prepared_corpus, init_from=str(straight), model__intermediate_size=128))
  assert not (tmp_path / "run").exists()
