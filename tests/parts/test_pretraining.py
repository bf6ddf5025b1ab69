"""What a pretraining run is made of, before anything is compiled."""

import re

import pytest

from parts import pretraining
from tests import runs

ONE_SEGMENT = {"objective__pair": "none", "data__short_rate": 0.0, "data__single_sentence": ""}


@pytest.mark.parametrize("rows", ["full_sentences", "doc_sentences"])
def test_rows_of_one_segment(prepared_corpus, rows):
  config = runs.config(prepared_corpus, data__rows=rows, **ONE_SEGMENT)
  parts = pretraining.build(config)
  read = parts.eval_batches(parts.stages[0], lambda rows: slice(None))
  batch = next(read)
  read.close()
  separators = (batch["tokens"] == 3).sum(axis=1)
  real = separators[batch["sequence_ids"].any(axis=1)]
  assert (real >= 1).all()
  assert (real > 1).any() == (rows == "full_sentences")
  assert not batch["segment_ids"].any()
  train = parts.train_batches(parts.stages[0], 0, lambda rows: slice(None))
  assert {name: values.shape for name, values in next(train).items()} == {
    name: (config.batch_size, *values.shape[1:]) for name, values in batch.items()
  }
  train.close()


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"data__rows": "packed"}, "data.rows='packed' is unknown; use one of pairs, full_sentences, doc_sentences"),
    (
      {"objective__pair": "nsp"},
      "config.objective.pair='nsp' is for rows of two segments, and config.data.rows='full_sentences' makes rows of "
      "one; set config.objective.pair='none', or config.data.rows='pairs'",
    ),
    ({"data__short_rate": 0.1}, "set config.data.short_rate=0, or config.data.rows='pairs'"),
    ({"data__single_sentence": "skip"}, "set config.data.single_sentence='', or config.data.rows='pairs'"),
  ],
)
def test_fields_that_contradict_the_rows_are_named(prepared_corpus, fields, said):
  config = runs.config(prepared_corpus, **{"data__rows": "full_sentences"} | ONE_SEGMENT | fields)
  for made_of in (pretraining.plan, pretraining.build):
    config.model.vocab_size = 1000
    with pytest.raises(ValueError, match=re.escape(said)):
      made_of(config)
