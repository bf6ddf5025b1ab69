"""Runs a model of ours and the model that transformers reads from a folder on the same random rows."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from data.rows import CLS_SEGMENT, PADDING_SEGMENT
from models.heads import gather_positions
from models.pretraining import PretrainingModel
from models.tasks import TaskModel
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from pretrained import export
from pretrained.load import Pretrained

TOLERANCE = 1e-3
_LENGTHS = (24, 17, 9)


def compare(ours: Pretrained, folder: pathlib.Path) -> dict[str, float]:
  """Returns the largest difference of each output: of the last hidden vectors, and of what the heads give.

  Raises:
    ValueError: transformers is not installed.
  """
  if any(importlib.util.find_spec(name) is None for name in ("transformers", "torch")):
    raise ValueError("--check needs transformers and torch: pip install -r benchmarks/requirements.txt")
  batch = rows(ours)
  found, expected = _our_outputs(ours, batch), _their_outputs(ours, folder, batch)
  if found.keys() != expected.keys():
    raise ValueError(f"outputs differ: {', '.join(found)} here, {', '.join(expected)} there")
  result = {}
  for name, a in found.items():
    b = expected[name]
    if a.shape[:2] == batch["tokens"].shape:
      a, b = a[batch["sequence_ids"] > 0], b[batch["sequence_ids"] > 0]
    result[name] = float(np.abs(a - b).max())
  return result


def rows(ours: Pretrained) -> dict[str, np.ndarray]:
  """Random tokens in two segments, padded on the family's side; int32 [3, length]."""
  last = export.cls_last(ours.config)
  length = min(max(_LENGTHS), getattr(ours.config, "max_length", max(_LENGTHS)))
  lengths = np.minimum(_LENGTHS, length)[:, None]
  place = np.arange(length)[None] - (length - lengths if last else 0)
  real = (place >= 0) & (place < lengths)
  tokens = np.random.default_rng(0).integers(0, ours.config.vocab_size, real.shape)
  segments = (place >= lengths // 2).astype(np.int32)
  if last:
    segments = np.where(real, np.where(place == lengths - 1, CLS_SEGMENT, segments), PADDING_SEGMENT)
  elif ours.config.type_vocab_size < 2:
    segments = np.zeros_like(segments)
  return {
    "tokens": np.where(real, tokens, ours.tokenizer.pad_id).astype(np.int32),
    "segment_ids": np.where(real | last, segments, 0).astype(np.int32),
    "sequence_ids": real.astype(np.int32),
  }


def _our_outputs(ours: Pretrained, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  names = ("tokens", "segment_ids", "sequence_ids")
  tokens, segment_ids, sequence_ids = (jnp.asarray(batch[name]) for name in names)
  run = _task_outputs if ours.head else _xlnet_outputs if isinstance(ours.config, XLNetConfig) else _encoder_outputs
  outputs = jax.jit(lambda params: run(ours, params, tokens, segment_ids, sequence_ids))(ours.params)
  return {name: np.asarray(x) for name, x in outputs.items()}


def _task_outputs(ours, params, *row):
  model = TaskModel(ours.config, ours.head)
  apply = lambda *args, **more: model.apply({"params": params}, *args, **more)
  hidden = apply(*row, method="hidden")
  if ours.head.kind != "conditional_span":
    logits = apply(*row)
    return {"hidden": hidden, "logits": logits[:, 0] if ours.head.is_pooled else logits}
  allowed = row[2] > 0
  starts = jnp.full((len(allowed), 1), allowed.shape[1] - 2, jnp.int32)
  logits = apply(*row, allowed=allowed, start_positions=starts)
  return {"hidden": hidden, "start": logits.start, "end": logits.end, "answer": logits.answer}


def _encoder_outputs(ours, params, *row):
  model = PretrainingModel(ours.config)
  apply = lambda *args, **more: model.apply({"params": params}, *args, **more)
  hidden = apply(*row, method="hidden")[-1]
  every = jnp.broadcast_to(jnp.arange(hidden.shape[1])[None], hidden.shape[:2])
  outputs = {"hidden": hidden}
  if "mlm_head" in params:
    outputs["words"] = apply(hidden, every, method="mlm_logits")[..., : ours.config.vocab_size]
  if "pooler" in params:
    pooled = apply(hidden, method="pool")
    if "pair_head" in params:
      outputs["pair"] = apply(pooled, method=lambda model, pooled: model.pair_head(pooled))
    elif "mlm_head" not in params:  # their models of masked words have no pooler
      outputs["pooled"] = pooled
  return outputs


def _xlnet_outputs(ours, params, tokens, segment_ids, sequence_ids):
  """The last position of each row is predicted by the query stream."""
  visible = jnp.broadcast_to((sequence_ids > 0)[:, None, :], (*tokens.shape, tokens.shape[1]))
  model = PermutationLM(ours.config)
  rows = {"visible": visible}
  hidden = model.apply({"params": params}, tokens, segment_ids, **rows, method="hidden").content
  if "lm_head" not in params:
    return {"hidden": hidden}
  target = jnp.full((len(tokens), 1), tokens.shape[1] - 1, jnp.int32)
  seen = gather_positions(visible.at[:, :, -1].set(False), target)
  hide = {"visible": visible.at[:, :, -1].set(False), "target_positions": target, "target_visible": seen}
  logits, _ = model.apply({"params": params}, tokens, segment_ids, **hide)
  return {"hidden": hidden, "words": logits[..., : ours.config.vocab_size]}


def _their_outputs(ours: Pretrained, folder: pathlib.Path, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  import torch
  import transformers

  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  model = getattr(transformers, export.architecture(ours)).from_pretrained(folder).eval()
  tensor = lambda name: torch.from_numpy(batch[name]).long()
  inputs = {"input_ids": tensor("tokens"), "token_type_ids": tensor("segment_ids")}
  inputs["attention_mask"] = tensor("sequence_ids")
  is_xlnet = isinstance(ours.config, XLNetConfig)
  if is_xlnet:
    inputs["use_mems"] = False
  with torch.no_grad():
    hidden = model.base_model(**inputs).last_hidden_state
    outputs = {"hidden": hidden}
    kind = ours.head and ours.head.kind
    if kind == "conditional_span":
      outputs |= _their_conditional_span(model, hidden, 1.0 - inputs["attention_mask"])
    elif kind == "choice":
      options = {name: x if isinstance(x, bool) else x[None] for name, x in inputs.items()}
      outputs["logits"] = model(**options).logits.T
    elif kind == "span":
      output = model(**inputs)
      outputs["logits"] = torch.stack([output.start_logits, output.end_logits], dim=-1)
    elif kind:
      outputs["logits"] = model(**inputs).logits
    elif is_xlnet and "lm_head" in ours.params:
      length = hidden.shape[1]
      blind = torch.zeros(len(hidden), length, length)
      blind[:, :, -1] = 1.0
      mapping = torch.zeros(len(hidden), 1, length)
      mapping[:, 0, -1] = 1.0
      outputs["words"] = model(**inputs, perm_mask=blind, target_mapping=mapping).logits
    else:
      outputs |= _their_pretraining(ours, model, inputs)
  return {name: x.numpy() for name, x in outputs.items()}


def _their_conditional_span(model, hidden, hidden_away) -> dict:
  import torch

  starts = torch.full((len(hidden),), hidden.shape[1] - 2)
  start = model.start_logits(hidden, p_mask=hidden_away)
  expected = torch.einsum("blh,bl->bh", hidden, start.softmax(dim=-1))
  return {
    "start": start,
    "end": model.end_logits(hidden, start_positions=starts, p_mask=hidden_away),
    "answer": model.answer_class(hidden, start_states=expected, cls_index=None)[:, None],
  }


def _their_pretraining(ours: Pretrained, model, inputs) -> dict:
  output, params, found = model(**inputs), ours.params, {}
  if "mlm_head" in params:
    found["words"] = output.prediction_logits if "prediction_logits" in output else output.logits
  if "pooler" in params and "pair_head" in params:
    names = ("seq_relationship_logits", "sop_logits", "logits")
    found["pair"] = next(output[name] for name in names if name in output)
  elif "pooler" in params and "mlm_head" not in params:
    found["pooled"] = output.pooler_output
  return found
