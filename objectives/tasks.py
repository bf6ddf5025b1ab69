"""Fine-tuning: one loss for each kind of head, as sums over sequences or tokens.

Rows may hold several sequences, each in a slot of its own (`data/tasks/packing.py` lays them out): attention, softmax
and pooling stay inside a sequence, so a packed batch has the loss of its sequences one by one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from models.attention import MASKED
from models.span import SpanLogits
from models.tasks import TaskModel
from objectives.mlm import cross_entropy, mean
from objectives.objective import Batch, Objective, Outputs, Sums, check_prng, dropout_rngs, no_carry

INPUTS = ("tokens", "segment_ids", "sequence_ids", "cls_positions")
STARTS, ENDS = 5, 5  # beams of a conditional span (XLNet's and ALBERT's start_n_top, end_n_top)


def make(model: TaskModel, dropout_prng: str = "threefry2x32") -> Objective:
  """Returns the objective of a task: the term of its head's kind.

  What `eval_fn` gives the host to score is what `data.tasks.decode` reads.

  Args:
    model: body and head.
    dropout_prng: generator of the dropout masks, see `objectives.pretraining`.

  Raises:
    ValueError: an unknown generator.
  """
  check_prng(dropout_prng)
  kind = KINDS[model.head.kind]
  inputs = lambda batch: {name: batch[name] for name in (*INPUTS, *kind.more_inputs)}

  def init(key):
    row = jnp.zeros((1, 1), jnp.int32)  # shapes of parameters depend on neither rows nor length
    given = dict.fromkeys((*INPUTS, *kind.more_inputs), row)
    return model.init(key, **given | {name: row > 0 for name in given if name == "allowed"})["params"]

  def loss_fn(params, carry, batch, key):
    rngs = dropout_rngs(key, batch["row"], dropout_prng)
    output = model.apply({"params": params}, **inputs(batch), deterministic=False, rngs=rngs)
    return *kind.sums(output, batch), carry

  def eval_fn(params, carry, batch, key):
    del key
    output, found = model.apply({"params": params}, inputs(batch), method=kind.read)
    return *kind.sums(output, batch), carry, found | {name: batch[name] for name in ("sequences", "sequence_ids")}

  return Objective(
    init,
    no_carry,
    loss_fn,
    eval_fn,
    frozen=(model.body,) if model.head.freeze else (),
    rows_apart=model.head.kind != "choice",
  )


def classification(logits: Float[Array, "batch slots labels"], batch: Batch) -> tuple[Sums, Sums]:
  """The term "classification" in nats a text, and "accuracy"."""
  labels, weights = batch["labels"], batch["weights"]
  right = logits.argmax(-1) == labels
  return {"classification": mean(cross_entropy(logits, labels), weights)}, {"accuracy": mean(right, weights)}


def regression(logits: Float[Array, "batch slots 1"], batch: Batch) -> tuple[Sums, Sums]:
  """The term "regression": the squared error of a text."""
  return {"regression": mean(jnp.square(logits[..., 0] - batch["labels"]), batch["weights"])}, {}


def tagging(logits: Float[Array, "batch length labels"], batch: Batch) -> tuple[Sums, Sums]:
  """The term "tagging" in nats a word, and "tag_accuracy". A word is its first piece; targets below 0 are none."""
  weights = (batch["targets"] >= 0).astype(jnp.float32)
  targets = jnp.maximum(batch["targets"], 0)
  right = logits.argmax(-1) == targets
  return {"tagging": mean(cross_entropy(logits, targets), weights)}, {"tag_accuracy": mean(right, weights)}


def choice(logits: Float[Array, "batch slots 1"], batch: Batch) -> tuple[Sums, Sums]:
  """The term "choice" in nats a question, a softmax over its options in whatever rows they are, and "accuracy"."""
  scores, weights = logits.reshape(-1), batch["weights"].reshape(-1)  # weights: 1 at the right option
  slots = scores.size
  group = jnp.where(batch["groups"] < 0, slots, batch["groups"]).reshape(-1)  # empty slots are a group of their own
  most = jax.ops.segment_max(jax.lax.stop_gradient(scores), group, slots + 1)[group]
  total = jax.ops.segment_sum(jnp.exp(scores - most), group, slots + 1)[group]
  loss = most + jnp.log(total) - scores
  weight = weights.sum()
  return {"choice": ((weights * loss).sum(), weight)}, {"accuracy": ((weights * (scores >= most)).sum(), weight)}


def span(logits: Float[Array, "batch length 2"], batch: Batch) -> tuple[Sums, Sums]:
  """The term "span": the mean of the start's and the end's nats, each a softmax over all tokens of the sequence (BERT
  section 4.2); and "span_accuracy", both right."""
  return _span(logits[..., 0], logits[..., 1], batch, own(batch))


def conditional_span(logits: SpanLogits, batch: Batch) -> tuple[Sums, Sums]:
  """The term "span" as above, over the tokens that may be answers and with the end given the true start; and "answer",
  half the nats of whether there is one (XLNet's function_builder.py: get_qa_outputs, run_squad.py: model_fn)."""
  terms, metrics = _span(logits.start, logits.end, batch, own(batch) & batch["allowed"][:, None, :])
  weights, label = batch["weights"], batch["no_answer"]
  answer = optax.sigmoid_binary_cross_entropy(logits.answer, label.astype(jnp.float32))
  right = (logits.answer > 0) == (label == 1)
  return terms | {"answer": mean(0.5 * answer, weights)}, metrics | {"answer_accuracy": mean(right, weights)}


def own(batch: Batch) -> Bool[Array, "batch slots length"]:
  """Which tokens of a row are of the sequence in each slot."""
  slots = 1 + jnp.arange(batch["cls_positions"].shape[1])
  return batch["sequence_ids"][:, None, :] == slots[None, :, None]


def _span(
  start: Float[Array, "batch length"],
  end: Float[Array, "batch length"],
  batch: Batch,
  among: Bool[Array, "batch slots length"],
) -> tuple[Sums, Sums]:
  losses, right = zip(_at(start, batch["start_positions"], among), _at(end, batch["end_positions"], among), strict=True)
  weights = batch["weights"]
  return {"span": mean(sum(losses) / 2, weights)}, {"span_accuracy": mean(right[0] & right[1], weights)}


def _at(
  logits: Float[Array, "batch length"], positions: Int[Array, "batch slots"], among: Bool[Array, "batch slots length"]
) -> tuple[Float[Array, "batch slots"], Bool[Array, "batch slots"]]:
  """(-log p of the position of each slot in a softmax over its tokens `among`, whether it is the likeliest)."""
  every = jnp.where(among, logits[:, None, :], MASKED)
  picked = jnp.take_along_axis(logits, positions, axis=1)
  return jax.nn.logsumexp(every, axis=-1) - picked, every.argmax(-1) == positions


def _read(name: str, of: Callable = lambda logits: logits) -> Callable:
  """A reader that gives the host `of` the logits under that name."""

  def read(model: TaskModel, inputs: Batch) -> tuple[Array, Outputs]:
    logits = model(**inputs)
    return logits, {name: of(logits)}

  return read


def _read_conditional(model: TaskModel, inputs: Batch) -> tuple[SpanLogits, Outputs]:
  """The logits with the true starts given, and the beams, from one pass through the body."""
  sequence_ids, cls_positions, allowed = (inputs[name] for name in ("sequence_ids", "cls_positions", "allowed"))
  hidden, head = model.hidden(inputs["tokens"], inputs["segment_ids"], sequence_ids), model.conditional_span_head
  logits = head(hidden, sequence_ids, allowed, cls_positions, inputs["start_positions"])
  return logits, head.beams(hidden, sequence_ids, allowed, cls_positions, STARTS, ENDS)._asdict()


class Kind(NamedTuple):
  """How a kind of head is trained and read.

  Attributes:
    sums: (its output, batch) → (terms, metrics).
    read: (model, inputs) → (its output without dropout, what the host scores), bound by flax.
    more_inputs: what the model takes of a batch besides INPUTS.
  """

  sums: Callable[..., tuple[Sums, Sums]]
  read: Callable = _read("logits")
  more_inputs: tuple[str, ...] = ()


KINDS = {
  "classification": Kind(classification),
  "regression": Kind(regression),
  "choice": Kind(choice),
  "tagging": Kind(tagging, _read("tags", lambda logits: logits.argmax(-1))),
  "span": Kind(span),
  "conditional_span": Kind(conditional_span, _read_conditional, ("allowed", "start_positions")),
}
