"""Attention that is watched: the probabilities that `mutable=[WATCHED]` gives, beside arithmetic by hand."""

import jax
import numpy as np
import pytest

from models.attention import WATCHED
from models.encoder import Encoder, EncoderLayer
from models.xlnet import PermutationLM
from tests.models import tiny, tiny_xlnet


def watched(config, params, rows):
  encode = lambda p: Encoder(config).apply({"params": p["encoder"]}, *rows, every_layer=True, mutable=[WATCHED])
  states, seen = jax.jit(encode)(params)
  return states, seen[WATCHED]["layers"]["blocks"][0]["attention"]["probabilities"][0]


def softmax(scores):
  raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
  return raised / raised.sum(axis=-1, keepdims=True)


def by_hand(layer: dict, hidden: np.ndarray, sequence_ids: np.ndarray, causal: bool) -> np.ndarray:
  """float [batch, heads, length, length] of one block's parameters, a head and a row at a time."""
  width = tiny.CONFIG.hidden_size // tiny.CONFIG.num_heads
  query, key = (
    np.asarray(hidden) @ np.asarray(layer["attention"][name]["kernel"]) + np.asarray(layer["attention"][name]["bias"])
    for name in ("query", "key")
  )
  result = []
  for q, k, ids in zip(query, key, np.asarray(sequence_ids), strict=True):
    visible = ids[:, None] == ids[None, :]
    if causal:
      visible &= np.arange(len(ids))[:, None] >= np.arange(len(ids))[None, :]
    heads = [slice(i * width, (i + 1) * width) for i in range(tiny.CONFIG.num_heads)]
    result.append([softmax(np.where(visible, q[:, h] @ k[:, h].T / width**0.5, -np.inf)) for h in heads])
  return np.array(result)


@pytest.mark.parametrize("fields", [{"causal": True}, {"sharing": "all", "num_groups": 1, "inner_groups": 2}])
def test_probabilities_are_those_of_each_block(fields):
  """A row with padding; ALBERT's layer of two blocks has both, one after another."""
  config = tiny.config(**fields)
  params, (tokens, segment_ids, sequence_ids) = tiny.params(config), tiny.rows()
  states, found = watched(config, params, (tokens, segment_ids, sequence_ids))
  assert found.shape == (3 * config.inner_groups, 2, 4, tiny.LENGTH, tiny.LENGTH)
  run_block = jax.jit(lambda block, hidden: EncoderLayer(config).apply({"params": block}, hidden, sequence_ids, True))
  hidden = states[0]
  for i, probabilities in enumerate(found):
    copy = i % config.inner_groups if config.sharing == "all" else i
    block = jax.tree.map(lambda x, copy=copy: x[copy], params["encoder"]["layers"])
    np.testing.assert_allclose(probabilities, by_hand(block, hidden, sequence_ids, config.causal), atol=1e-5)
    hidden = run_block(block, hidden)
  np.testing.assert_allclose(states[-1], hidden, atol=1e-5)


def test_nothing_is_kept_without_being_asked_for():
  params, rows = tiny.params(), tiny.rows()
  program = lambda asked: str(
    jax.make_jaxpr(lambda p: Encoder(tiny.CONFIG).apply({"params": p["encoder"]}, *rows, mutable=asked))(params)
  )
  stacked = f"f32[3,2,4,{tiny.LENGTH},{tiny.LENGTH}]"
  assert stacked in program([WATCHED])
  assert stacked not in program([])


def relative_by_hand(layer: dict, hidden: np.ndarray, segment_ids: np.ndarray, visible: np.ndarray) -> np.ndarray:
  """float [heads, length, length] of one layer and row: ((q + u)·k + (q + v)·r + (q + w)·s) / √d, a pair at a time."""
  layer = jax.tree.map(lambda x: np.asarray(x, np.float64), layer)
  (length, width), heads = hidden.shape, tiny_xlnet.CONFIG.num_heads
  query, key = (np.asarray(hidden) @ layer[name]["kernel"] for name in ("query", "key"))
  frequencies = 10_000.0 ** -(np.arange(0, width, 2) / width)
  scores = np.full((heads, length, length), -np.inf)
  for head, i, j in np.ndindex(*scores.shape):
    if visible[i, j]:
      own = slice(head * width // heads, (head + 1) * width // heads)
      angles = (i - j) * frequencies
      distance_key = np.concatenate([np.sin(angles), np.cos(angles)]) @ layer["position"]["kernel"][:, own]
      u, v, w = (layer[f"{name}_bias"][head] for name in ("content", "position", "segment"))
      segment_key = layer["segment_embedding"][int(segment_ids[i] != segment_ids[j]), head]
      q = query[i, own]
      products = (q + u) @ key[j, own] + (q + v) @ distance_key + (q + w) @ segment_key
      scores[head, i, j] = products / (width // heads) ** 0.5
  return softmax(scores)


def test_an_xlnets_content_stream():
  """What may not be seen is 0; each token sees itself."""
  config, params, (tokens, segment_ids) = tiny_xlnet.CONFIG, tiny_xlnet.params(), tiny_xlnet.rows()
  allowed = tiny_xlnet.options()["visible"]

  def run(params):
    model = PermutationLM(config)
    options = {"visible": allowed, "every_layer": True, "method": "hidden", "mutable": [WATCHED]}
    return model.apply({"params": params}, tokens, segment_ids, **options)

  output, seen = jax.jit(run)(params)
  found = seen[WATCHED]["xlnet"]["layers"]["blocks"][0]["attention"]["probabilities"][0]
  assert found.shape == (3, 2, 4, 10, 10)
  for i in range(config.num_layers):
    layer = jax.tree.map(lambda x, i=i: x[i], params["xlnet"]["layers"]["attention"])
    for row in range(2):
      visible = np.asarray(allowed[row]) | np.eye(10, dtype=bool)
      expected = relative_by_hand(layer, output.content[i, row], np.asarray(segment_ids[row]), visible)
      np.testing.assert_allclose(found[i, row], expected, atol=1e-5)
