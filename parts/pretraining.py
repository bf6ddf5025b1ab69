"""Pretraining: a prepared corpus, read by an encoder or an XLNet."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from data import pipeline
from data.corpus import TOKENIZER_FOLDER, Corpus
from data.full_sentences import SentenceSource
from data.places import local_copy
from data.streams import StreamSource
from data.tokenizers import Tokenizer, load_tokenizer
from models import fused
from models.config import EncoderConfig
from models.flops import pretraining_flops, xlnet_flops
from models.pretraining import PretrainingModel
from models.primitives import ModelConfig
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import dae, plm, pretraining
from objectives.masking import MaskingConfig
from objectives.objective import Batch, Objective, Params
from objectives.vocabulary import Vocabulary
from parts.parts import LocalRows, Parts, Plan
from pretrained.load import load
from pretrained.transfer import fill, require_family, require_model
from training import settings
from training.programs import Shapes, shapes_of
from training.stages import Stage, make_stages
from training.step import EVAL_SEED

Rows = Callable[[Corpus, Tokenizer, Stage, int, int], pipeline.Source]


class Family(NamedTuple):
  """What a family of models makes of a run's data, model and objective sections.

  Attributes:
    model: its shape and arithmetic.
    objective: what is predicted, by which model.
    rows: (split, its tokenizer, stage, seed, number of the stage) → the rows of a stage, for training or of the
      held-out split.
    blank: length → a row of zeros, with the arrays that rows have.
    flops: (rows, length) → matrix-product FLOPs of one forward pass.
  """

  model: ModelConfig
  objective: Objective
  rows: Rows
  blank: Callable[[int], Batch]
  flops: Callable[[int, int], float]


def encoder(config: ConfigDict, stages: list[Stage], vocabulary: Vocabulary) -> Family:
  """BERT and ALBERT: masked tokens, and a decision about a pair of segments."""
  model = model_config(EncoderConfig, config, len(vocabulary.special))
  if (longest := max(stage.length for stage in stages)) > model.max_length:
    raise ValueError(f"a stage has length {longest} and config.model.max_length={model.max_length}; raise it")
  masking = MaskingConfig(**config.objective.masking)
  objective = config.objective
  recipe = pretraining.PretrainingConfig(masking, objective.pair, objective.words, objective.dropout_prng)
  return Family(
    model=model,
    objective=pretraining.make(PretrainingModel(model), recipe, vocabulary),
    rows=encoder_rows(config),
    blank=pipeline.PairSource.blank,  # rows of every kind have the same arrays
    flops=lambda rows, length: pretraining_flops(model, rows, length, recipe.slots(length)),
  )


def pairs(config: ConfigDict) -> Rows:
  """Rows of two segments (BERT, ALBERT)."""
  return lambda corpus, tokenizer, stage, seed, number: pipeline.PairSource(
    corpus,
    tokenizer,
    stage.length,
    seed,
    number,
    config.data.short_rate,
    config.objective.pair,
    config.data.single_sentence,
  )


def sentences(config: ConfigDict, across: bool) -> Rows:
  """Rows of one segment (RoBERTa)."""
  for field, value in (("objective.pair", "none"), ("data.short_rate", 0), ("data.single_sentence", "")):
    section, name = field.split(".")
    if config[section][name] != value:
      raise ValueError(
        f"config.{field}={config[section][name]!r} is for rows of two segments, and config.data.rows="
        f"{config.data.rows!r} makes rows of one; set config.{field}={value!r}, or config.data.rows='pairs'"
      )
  return lambda corpus, tokenizer, stage, seed, number: SentenceSource(
    corpus, tokenizer, stage.length, seed, number, across
  )


ROWS = {
  "pairs": pairs,
  "full_sentences": functools.partial(sentences, across=True),
  "doc_sentences": functools.partial(sentences, across=False),
}


def encoder_rows(config: ConfigDict) -> Rows:
  """Returns the rows that config.data.rows names."""
  if config.data.rows not in ROWS:
    raise ValueError(f"config.data.rows={config.data.rows!r} is unknown; use one of {', '.join(ROWS)}")
  return ROWS[config.data.rows](config)


def xlnet(config: ConfigDict, stages: list[Stage], vocabulary: Vocabulary) -> Family:
  """XLNet: targets in a random order (or hidden all at once), from contiguous rows with memory."""
  model = model_config(XLNetConfig, config, len(vocabulary.special))
  recipe = plm.PLMConfig(reuse_len=config.data.reuse_len, **config.objective)
  for stage in stages:
    recipe.check_length(stage.length)
  has_pair = recipe.pair != "none"
  if has_pair and not 0 < config.data.random_rate < 1:
    raise ValueError(
      f"config.objective.pair={recipe.pair!r} with config.data.random_rate={config.data.random_rate}: segments of one "
      "kind teach nothing; set config.data.random_rate=0.5"
    )
  return Family(
    model=model,
    objective={"plm": plm, "dae": dae}[recipe.words].make(PermutationLM(model, has_pair), recipe, vocabulary),
    rows=lambda corpus, tokenizer, stage, seed, number: StreamSource(
      corpus,
      tokenizer,
      stage.length,
      stage.batch_size,
      config.data.reuse_len,
      seed,
      number,
      config.data.bidirectional,
      config.data.random_rate,
      model.mem_len,
      partial=corpus.split != "train",
    ),
    blank=StreamSource.blank,
    flops=lambda rows, length: xlnet_flops(
      model, rows, length, recipe.num_predict, query=recipe.words == "plm", pair=has_pair
    ),
  )


FAMILIES = {"encoder": encoder, "xlnet": xlnet}


def model_config(kind: type, config: ConfigDict, pieces: int):
  """Returns the model section as an object of `kind`, for a vocabulary of so many pieces, which is its size where
  vocab_size is 0."""
  fields = dict(config.model)
  if strange := sorted(fields.keys() - {field.name for field in dataclasses.fields(kind)}):
    raise ValueError(
      f"config.family={config.family!r} has no config.model.{strange[0]}: the family is the recipe's, use one of "
      "configs/ that is of it"
    )
  model = kind(**fields | {"vocab_size": fields["vocab_size"] or pieces})
  if pieces > model.vocab_size:
    raise ValueError(
      f"the vocabulary of {config.data.corpus} has {pieces} pieces and config.model.vocab_size="
      f"{model.vocab_size}; set it to at least that, or to 0"
    )
  return model


def described(config: ConfigDict) -> Family:
  """Returns what the config's family makes of it, with no text: of config.model.vocab_size pieces, it is assumed that
  the first five are special and each of the others is a word.

  Raises:
    ValueError: fields that contradict each other, or no vocab_size.
  """
  if not config.model.vocab_size:
    raise ValueError("config.model.vocab_size=0 leaves the size to a corpus, and none is read here; set it")
  ids = np.arange(config.model.vocab_size)
  one = np.ones(len(ids), np.int64)
  vocabulary = Vocabulary(4, ids < 5, ids >= 5, one, one, (ids == 2) | (ids == 3))
  return FAMILIES[config.family](config, stages_of(config), vocabulary)


def plan(config: ConfigDict) -> Plan:
  """Returns what is compiled for a pretraining run, with no text.

  Raises:
    ValueError: as `described`.
  """
  family = described(config)
  return Plan(
    objective=family.objective,
    stages=stages_of(config),
    shapes=lambda stage: ([shapes_of(family.blank(stage.length), stage.batch_size)], []),
    flops=lambda rows, length: 3 * family.flops(rows, length),
  )


def stages_of(config: ConfigDict) -> list[Stage]:
  """Returns the stages that the config declares."""
  return make_stages(config.steps, config.length, config.batch_size, config.stages)


def build(config: ConfigDict) -> Parts:
  """Returns the parts of a pretraining run.

  Raises:
    ValueError, FileNotFoundError: fields that contradict each other or the corpus.
  """
  if not config.data.corpus:
    raise ValueError("config.data.corpus is empty; name a folder written by `python -m tools.prepare_corpus`")
  stages = stages_of(config)
  corpora = {split: Corpus.open(config.data.corpus, split) for split in ("train", "heldout")}
  with local_copy(os.path.join(config.data.corpus, TOKENIZER_FOLDER)) as folder:
    tokenizer = load_tokenizer(folder)
  corpora["train"].require_tokenizer(tokenizer)
  vocabulary = Vocabulary(
    mask_id=tokenizer.mask_id,
    special=tokenizer.special,
    word_start=tokenizer.word_start,
    num_bytes=tokenizer.num_bytes,
    counts=corpora["train"].counts(),
    functional=np.isin(np.arange(tokenizer.vocab_size), [tokenizer.sep_id, tokenizer.cls_id]),
  )
  family = FAMILIES[config.family](config, stages, vocabulary)

  def train_source(stage: Stage) -> pipeline.Source:
    return family.rows(corpora["train"], tokenizer, stage, config.seed, stage.index)

  def eval_source(stage: Stage) -> pipeline.Source:
    return family.rows(corpora["heldout"], tokenizer, stage, EVAL_SEED, 0)

  for stage in stages:  # what cannot be read is said before anything is written
    train_source(stage), eval_source(stage)

  def shapes(stage: Stage) -> tuple[list[Shapes], list[Shapes]]:
    return [shapes_of(family.blank(stage.length), stage.batch_size)], []

  def train_batches(stage: Stage, first: int, local: LocalRows) -> Iterator[Batch]:
    rows = local(stage.batch_size)
    return pipeline.batches(train_source(stage), stage.batch_size, first - stage.start, stage.stop - stage.start, rows)

  def eval_batches(stage: Stage, local: LocalRows) -> Iterator[Batch]:
    rows = local(stage.batch_size)
    return pipeline.evaluation_batches(eval_source(stage), stage.batch_size, config.eval_batches, rows)

  def initial(params: Params) -> Params:
    if not config.init_from:
      return params
    checkpoint = load(config.init_from)
    require_family(params, checkpoint)  # first: no other corpus would mend it
    if checkpoint.tokenizer.fingerprint != tokenizer.fingerprint:
      raise ValueError(
        f"config.init_from={config.init_from} has another vocabulary than {config.data.corpus}; "
        "prepare the corpus with the checkpoint's tokenizer (--tokenizer accepts its folder)"
      )
    require_model(family.model, checkpoint)
    return fill(params, checkpoint)

  return Parts(
    objective=family.objective,
    stages=stages,
    shapes=shapes,
    train_batches=train_batches,
    eval_batches=eval_batches,
    flops=lambda rows, length: 3 * family.flops(rows, length),
    initial=initial,
    facts={
      "model.vocab_size": family.model.vocab_size,
      "data.tokenizer": tokenizer.fingerprint,
      "data.corpus_fingerprint": settings.corpus_fingerprint(corpora.values()),
    },
    save_assets=lambda workdir: tokenizer.save(os.path.join(workdir, TOKENIZER_FOLDER)),
    attention=functools.partial(fused.described, family.model),
  )
