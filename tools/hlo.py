"""What a compiled program does, read from its text (HLO): products of matrices and what devices send one another, each
as often as it is executed.

XLA's own cost analysis counts the body of a loop once. Here a computation counts as often as it is called, a loop's
body as often as the loop turns.
"""

import dataclasses
import functools
import math
import re
from typing import NamedTuple

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "u16": 2, "f64": 8, "s64": 8, "u64": 8, "c64": 8}
_CALLED = re.compile(r"\b(to_apply|body|condition|calls|branch_computations|called_computations)=(\{[^}]*\}|%[\w.\-]+)")
_END = re.compile(r"\}(, execution_thread=.*)?")  # of a computation; attributes of a kernel may have lines with more
_ARRAY = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<=]*)\]")


class Array(NamedTuple):
  """An array's element type and sizes."""

  dtype: str
  shape: tuple[int, ...]

  @property
  def bytes(self) -> int:
    """Without what a layout pads."""
    return _BYTES.get(self.dtype, 4) * math.prod(self.shape)


class Instruction(NamedTuple):
  """One line: `result` has an entry for each array of a tuple."""

  name: str
  result: tuple[Array, ...]
  opcode: str
  operands: tuple[str, ...]
  rest: str  # attributes
  text: str  # between the operands' parentheses


class Collective(NamedTuple):
  """What is sent at once: `bytes` is the size of the whole arrays, sent or received, whichever are larger; between
  slices, of what one device sends, each device of a slice its own part."""

  kind: str
  arrays: tuple[Array, ...]
  devices: int  # that take part in one group, one a slice between slices; 0 = all
  times: float  # executed in a run of the program
  source: str  # where it comes from, in JAX's words
  between: str = "devices"  # or "slices", over the data-centre network

  @property
  def bytes(self) -> int:
    return sum(array.bytes for array in self.arrays)


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
  """Computations by name, each a list of instructions.

  Attributes:
    computations: all of them.
    entry: the one that runs.
  """

  computations: dict[str, dict[str, Instruction]]
  entry: str

  @functools.cached_property
  def times(self) -> dict[str, float]:
    """How often each computation is executed in a run of the program."""
    order, seen = [], set()

    def visit(name: str) -> None:  # callees first
      if name not in seen:
        seen.add(name)
        for callee, _ in self._calls(name):
          visit(callee)
        order.append(name)

    visit(self.entry)
    times = dict.fromkeys(order, 0.0) | {self.entry: 1.0}
    for name in reversed(order):
      for callee, turns in self._calls(name):
        times[callee] += times[name] * turns
    return times

  def _calls(self, name: str) -> list[tuple[str, int]]:
    """(computation, how often) for each that one execution of this one executes."""
    calls = []
    for instruction in self.computations[name].values():
      turns = self.turns(instruction, name) if instruction.opcode == "while" else 1
      for kind, callees in _CALLED.findall(instruction.rest):
        for callee in re.findall(r"%([\w.\-]+)", callees):
          calls.append((callee, turns + (kind == "condition")))
    return calls

  def turns(self, loop: Instruction, inside: str) -> int:
    """How often a loop turns: as the compiler says, or as its condition and its start show; else 1."""
    if known := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest):
      return int(known[1])
    condition = self.computations[re.search(r"condition=%([\w.\-]+)", loop.rest)[1]]
    root = list(condition.values())[-1]
    sides = [condition.get(name) for name in root.operands]
    if root.opcode != "compare" or "direction=LT" not in root.rest or sides[1].opcode != "constant":
      return 1
    stop, start = int(sides[1].text), 0
    place = re.search(r"index=(\d+)", sides[0].rest)
    first = self.computations[inside].get(loop.operands[0])
    if place and first is not None and first.opcode == "tuple":
      begin = self.computations[inside][first.operands[int(place[1])]]
      start = int(begin.text) if begin.opcode == "constant" else 0
    return max(stop - start, 0)

  def matrix_flops(self) -> float:
    """FLOPs of all matrix products and convolutions of one device, two a multiply-add."""
    total = 0.0
    for name, times in self.times.items():
      body = self.computations[name]
      for instruction in body.values():
        if instruction.opcode in _FLOPS:
          operands = [body[operand].result[0] for operand in instruction.operands]
          total += times * _FLOPS[instruction.opcode](instruction, *operands)
    return total

  def kernels(self) -> int:
    """How often kernels run that are written by hand: what they do is not in the text."""
    is_kernel = lambda i: i.opcode == "custom-call" and re.search(r'target="(tpu_custom_call|__cudnn)', i.rest)
    return int(
      sum(times * sum(map(bool, map(is_kernel, self.computations[n].values()))) for n, times in self.times.items())
    )

  def collectives(self) -> list[Collective]:
    """What is sent between devices, in the order of the text."""
    found = []
    for name, times in self.times.items():
      body = self.computations[name]
      for instruction in body.values():
        kind = instruction.opcode.removesuffix("-start")
        if kind == "send":
          found += self._between_slices(instruction, times)
        if kind not in COLLECTIVES:
          continue
        sent = tuple(array for operand in instruction.operands for array in body[operand].result)
        received = instruction.result
        if instruction.opcode.endswith("-start") and kind != "all-reduce":
          received = received[len(sent) : 2 * len(sent)]  # operands, results, and what the hardware keeps
        arrays = max(sent, received, key=lambda arrays: sum(array.bytes for array in arrays))
        if kind == "all-reduce" and self._is_scattered(instruction, name):
          kind = "reduce-scatter"
        devices = group_size(instruction.rest)
        if times and devices != 1:
          source = re.search(r'op_name="([^"]*)"', instruction.rest)
          found.append(Collective(kind, arrays, devices, times, source[1] if source else ""))
    return found

  def _between_slices(self, send: Instruction, times: float) -> list[Collective]:
    """What a host is given to send to the other slices; nothing if that is not what is sent."""
    if not (kind := re.search(r'_xla_megascale_transfer_type="(\w+)"', send.rest)):
      return []
    slices = re.search(r'_xla_megascale_target="\{([^}]*)\}', send.rest)
    array, *_ = send.result  # and a number, and a token
    kind, count = kind[1].lower().replace("_", "-"), _count(slices[1]) if slices else 0
    return [Collective(kind, (array,), count, times, "", "slices")]

  def _is_scattered(self, reduce: Instruction, inside: str) -> bool:
    """Whether each device keeps but its share of a sum: on a TPU a fusion of a sum and a slice does that."""
    users = [i for i in self.computations[inside].values() if reduce.name in i.operands]
    return inside.startswith("all-reduce-scatter") or (
      inside != self.entry and bool(users) and all(user.opcode == "dynamic-slice" for user in users)
    )


def _count(numbers: str) -> int:
  """How many numbers "1,4:6" stands for."""
  ends = [part.split(":") for part in numbers.split(",") if part]
  return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def group_size(attributes: str) -> int:
  """Returns how many devices take part in one group of a collective; 0 = all."""
  if named := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))?\s*\{([^}]*)\}", attributes):
    sizes = dict(re.findall(r"'([^']+)'=(\d+)", named[1]))
    parts = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named[2])  # an axis, or :(a)b, a part of it of size b
    return math.prod(int(part or sizes[axis]) for axis, part in parts)
  if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]<=", attributes):
    return int(counted[2])
  if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", attributes):
    return len(listed[1].split(","))
  return 0


def read(text: str) -> Program:
  """Returns the program of `compiled.as_text()`."""
  computations, entry, body = {}, "", None
  for line in text.splitlines():
    if body is None:
      if line.endswith("{") and (header := re.match(r"(ENTRY )?%?([\w.\-]+) \(", line)):
        body = computations[header[2]] = {}
        entry = header[2] if header[1] else entry
    elif _END.fullmatch(line):
      body = None
    elif (instruction := _instruction(line)) is not None:
      body[instruction.name] = instruction
  return Program(computations, entry)


def _instruction(line: str) -> Instruction | None:
  head = re.match(r"\s*(?:ROOT )?%([\w.\-]+) = ", line)
  if head is None:
    return None
  line = line[head.end() :]
  shape_end = _closing(line, 0) if line.startswith("(") else line.index(" ")
  shape, line = line[:shape_end], line[shape_end:].lstrip()
  start = line.index("(")
  end = _closing(line, start)
  inner = line[start + 1 : end - 1]
  operands = tuple(re.findall(r"%([\w.\-]+)", inner))
  return Instruction(head[1], _arrays(shape), line[:start], operands, line[end:], inner)


def _closing(text: str, start: int) -> int:
  """Returns the place behind the parenthesis that closes the one at `start`."""
  depth = 0
  for match in re.compile(r"[()]").finditer(text, start):
    depth += 1 if match[0] == "(" else -1
    if depth == 0:
      return match.end()
  raise ValueError(f"a parenthesis is not closed: {text[start : start + 80]}")


def _arrays(shape: str) -> tuple[Array, ...]:
  plain = re.sub(r"\{[^{}]*\}", "", shape)  # layouts
  sizes = lambda text: tuple(int(size.lstrip("<=")) for size in text.split(",") if size)
  return tuple(Array(dtype, sizes(text)) for dtype, text in _ARRAY.findall(plain))


def _numbers(name: str, attributes: str) -> tuple[int, ...]:
  found = re.search(rf"\b{name}=\{{([\d,]*)\}}", attributes)
  return tuple(map(int, filter(None, found[1].split(",")))) if found else ()


def _dot_flops(dot: Instruction, left: Array, right: Array) -> float:
  contracted = math.prod(left.shape[axis] for axis in _numbers("lhs_contracting_dims", dot.rest))
  return 2.0 * math.prod(dot.result[0].shape) * contracted


def _convolution_flops(convolution: Instruction, left: Array, right: Array) -> float:
  """A TPU's products are convolutions, over batch axes too: only outputs that meet an input count."""
  labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", convolution.rest)
  inputs, kernel, outputs = (labels[i] for i in (1, 2, 3))
  window = re.search(r"window=\{([^}]*)\}", convolution.rest)
  fields = dict(re.findall(r"(\w+)=([\dx_\-]+)", window[1])) if window else {}
  spatial = sorted(label for label in inputs if label.isdigit())
  each = lambda name, default: fields[name].split("x") if name in fields else [default] * len(spatial)
  flops = 2.0 * convolution.result[0].shape[outputs.index("b")] * convolution.result[0].shape[outputs.index("f")]
  flops *= right.shape[kernel.index("i")]
  steps = zip(each("stride", "1"), each("pad", "0_0"), each("lhs_dilate", "1"), each("rhs_dilate", "1"), strict=True)
  for label, (stride, pad, apart, kernel_apart) in zip(spatial, steps, strict=True):
    out, taps = convolution.result[0].shape[outputs.index(label)], right.shape[kernel.index(label)]
    flops *= _pairs(
      out, taps, left.shape[inputs.index(label)], int(stride), int(pad.split("_")[0]), int(apart), int(kernel_apart)
    )
  return flops


@functools.cache
def _pairs(out: int, taps: int, size: int, stride: int, pad: int, apart: int, kernel_apart: int) -> int:
  """Pairs of an output and a tap of the kernel that meet on an input, not on padding or between inputs."""
  places = (o * stride + k * kernel_apart - pad for o in range(out) for k in range(taps))
  return sum(0 <= place <= (size - 1) * apart and place % apart == 0 for place in places)


_FLOPS = {"dot": _dot_flops, "convolution": _convolution_flops}
