"""How the models of each family read rows of text: one entry a family, for the tools."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.attention import WATCHED
from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from models.primitives import ModelConfig
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig

Rows = dict[str, jax.Array]  # a batch as data.rows.padded makes it, each [batch, length]


class Family(NamedTuple):
  """What the tools ask of a family.

  Attributes:
    cls_last: its rows end with the cls piece and are padded at the left (see data/rows.py).
    longest: config → tokens of the longest row that the model can read; None where any length will do.
    modules: the modules of the parameters that `states` and the pooler need.
    head: the module that predicts pieces.
    states: (config, params, rows, every layer or the last) → hidden vectors [layers + 1, batch, length, width], from
      the input of the first layer to the output of the last, or these alone [batch, length, width].
    fill: (config, params, rows, is_blank bool [batch, length], positions [batch, blanks]) → logits [batch, blanks,
      vocab]. `is_blank` says where no token is known, `positions` where one is predicted; unused slots hold anything.
    attention: (config, params, rows) → probabilities [blocks, batch, heads, length, length]: what each token sees of
      every other, in the blocks of all layers one after another; of an XLNet's content stream.
    pair: (config, params, rows) → logits [batch, 2] of whether the second text follows the first, 0 = it does.
  """

  cls_last: bool
  longest: Callable[[ModelConfig], int | None]
  modules: tuple[str, ...]
  head: str
  states: Callable[[ModelConfig, dict, Rows, bool], jax.Array]
  fill: Callable[[ModelConfig, dict, Rows, jax.Array, jax.Array], jax.Array]
  attention: Callable[[ModelConfig, dict, Rows], jax.Array]
  pair: Callable[[ModelConfig, dict, Rows], jax.Array]


def _row(rows: Rows) -> tuple[jax.Array, ...]:
  return rows["tokens"], rows["segment_ids"], rows["sequence_ids"]


def _encoder_states(config: EncoderConfig, params: dict, rows: Rows, every_layer: bool) -> jax.Array:
  states = lambda model, *row: model.encoder(*row, every_layer=every_layer)
  return PretrainingModel(config).apply({"params": params}, *_row(rows), method=states)


def _encoder_attention(config: EncoderConfig, params: dict, rows: Rows) -> jax.Array:
  config = dataclasses.replace(config, attention="explicit")  # no kernel holds the probabilities
  states = lambda model, *row: model.encoder(*row)
  _, seen = PretrainingModel(config).apply({"params": params}, *_row(rows), method=states, mutable=[WATCHED])
  return seen[WATCHED]["encoder"]["layers"]["blocks"][0]["attention"]["probabilities"][0]


def _encoder_fill(
  config: EncoderConfig, params: dict, rows: Rows, is_blank: jax.Array, positions: jax.Array
) -> jax.Array:
  """A blank is the mask's own piece, which every token sees; a left-to-right model says it at the token before."""
  del is_blank
  if config.causal:
    positions = jnp.maximum(positions - 1, 0)
  hidden = _encoder_states(config, params, rows, every_layer=False)
  return PretrainingModel(config).apply({"params": params}, hidden, positions, method="mlm_logits")


def _encoder_pair(config: EncoderConfig, params: dict, rows: Rows) -> jax.Array:
  judge = lambda model, *row: model.pair_head(model.pool(model.encoder(*row)))
  return PretrainingModel(config).apply({"params": params}, *_row(rows), method=judge)


def _seen(seen: jax.Array, queries: int) -> jax.Array:
  """What `queries` vectors of each row see, all alike: bool [batch, queries, length] from [batch, length]."""
  return jnp.broadcast_to(seen[:, None, :], (seen.shape[0], queries, seen.shape[1]))


def _xlnet_states(config: XLNetConfig, params: dict, rows: Rows, every_layer: bool) -> jax.Array:
  """The content stream's, every token seeing every other."""
  tokens, segment_ids, sequence_ids = _row(rows)
  visible = _seen(sequence_ids > 0, tokens.shape[1])
  return (
    PermutationLM(config)
    .apply({"params": params}, tokens, segment_ids, visible=visible, every_layer=every_layer, method="hidden")
    .content
  )


def _xlnet_attention(config: XLNetConfig, params: dict, rows: Rows) -> jax.Array:
  tokens, segment_ids, sequence_ids = _row(rows)
  _, seen = PermutationLM(config).apply(
    {"params": params},
    tokens,
    segment_ids,
    visible=_seen(sequence_ids > 0, tokens.shape[1]),
    method="hidden",
    mutable=[WATCHED],
  )
  return seen[WATCHED]["xlnet"]["layers"]["blocks"][0]["attention"]["probabilities"][0]


def _xlnet_fill(config: XLNetConfig, params: dict, rows: Rows, is_blank: jax.Array, positions: jax.Array) -> jax.Array:
  """Each blank is predicted by the query stream as the target right behind all known tokens in the order.

  What stands at a blank is seen by nobody, so it may be any token (XLNet section 2.2).
  """
  tokens, segment_ids, sequence_ids = _row(rows)
  known = (sequence_ids > 0) & ~is_blank
  logits, _ = PermutationLM(config).apply(
    {"params": params},
    tokens,
    segment_ids,
    visible=_seen(known, tokens.shape[1]),
    target_positions=positions,
    target_visible=_seen(known, positions.shape[1]),
  )
  return logits


def _xlnet_pair(config: XLNetConfig, params: dict, rows: Rows) -> jax.Array:
  """From the content stream, every token seeing every other, and no memory."""
  tokens, segment_ids, sequence_ids = _row(rows)
  last = jnp.full((len(tokens), 1), tokens.shape[1] - 1, jnp.int32)
  visible = _seen(sequence_ids > 0, tokens.shape[1])
  model = PermutationLM(config, pair=True)
  return model.apply(
    {"params": params}, tokens, segment_ids, visible=visible, read_positions=last, method="with_pair"
  ).pair_logits


_FAMILIES = {
  EncoderConfig: Family(
    cls_last=False,
    longest=lambda config: config.max_length,
    modules=("encoder", "pooler"),
    head="mlm_head",
    states=_encoder_states,
    fill=_encoder_fill,
    attention=_encoder_attention,
    pair=_encoder_pair,
  ),
  XLNetConfig: Family(
    cls_last=True,
    longest=lambda config: None,
    modules=("xlnet",),
    head="lm_head",
    states=_xlnet_states,
    fill=_xlnet_fill,
    attention=_xlnet_attention,
    pair=_xlnet_pair,
  ),
}


def family_of(config: ModelConfig) -> Family:
  """The entry of the family whose model `config` describes."""
  return _FAMILIES[type(config)]
