"""Reading compiled programs: loops, products, and what is sent."""

import functools

import jax
import jax.numpy as jnp
import pytest

from tools import hlo

# A loop of five turns, from 2 to 7, whose body has a product and a sum over two groups of four devices.
LOOP = """HloModule loop, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (p: f32[8,4], q: f32[4,16]) -> f32[8,16] {
  %p = f32[8,4]{1,0:T(8,128)} parameter(0)
  %q = f32[4,16]{1,0:T(8,128)} parameter(1)
  ROOT %product = f32[8,16]{1,0:T(8,128)} dot(%p, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], f32[8,4], f32[4,16])) -> (s32[], f32[8,4], f32[4,16]) {
  %state = (s32[]{:T(256)}, f32[8,4]{1,0:T(8,128)}, /*index=2*/f32[4,16]{1,0:T(8,128)}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %a = f32[8,4]{1,0} get-tuple-element(%state), index=1
  %b = f32[4,16]{1,0} get-tuple-element(%state), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %c = f32[8,16]{1,0} fusion(%a, %b), kind=kOutput, calls=%fused
  %sent = f32[8,16]{1,0} all-reduce(%c), replica_groups=[2,4]<=[8], to_apply=%add, metadata={op_name="jit(f)/here"}
  ROOT %out = (s32[], f32[8,4]{1,0}, f32[4,16]{1,0}) tuple(%next, %a, %b)
}

%condition (state.1: (s32[], f32[8,4], f32[4,16])) -> pred[] {
  %stop = s32[] constant(7)
  %state.1 = (s32[], f32[8,4]{1,0}, f32[4,16]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  ROOT %less = pred[] compare(%i.1, %stop), direction=LT
}

ENTRY %main (a.1: f32[8,4], b.1: f32[4,16]) -> (s32[], f32[8,4], f32[4,16]) {
  %a.1 = f32[8,4]{1,0} parameter(0)
  %b.1 = f32[4,16]{1,0} parameter(1)
  %two = s32[] constant(2)
  %start = (s32[], f32[8,4]{1,0}, f32[4,16]{1,0}) tuple(%two, %a.1, %b.1)
  %alone = f32[8,4]{1,0} all-reduce(%a.1), replica_groups={{0},{1}}, to_apply=%add
  ROOT %loop = (s32[], f32[8,4]{1,0}, f32[4,16]{1,0}) while(%start), condition=%condition, body=%body
}
"""


def test_what_a_loop_does_counts_as_often_as_it_turns():
  program = hlo.read(LOOP)
  assert program.entry == "main"
  assert program.times["body"] == 5
  assert program.times["condition"] == 6
  assert program.matrix_flops() == 5 * 2 * 8 * 4 * 16
  (sent,) = program.collectives()  # a group of one sends nothing
  assert (sent.kind, sent.bytes, sent.devices, sent.times, sent.source) == ("all-reduce", 512, 4, 5, "jit(f)/here")


def test_the_compilers_own_count_of_turns_goes_before():
  known = 'body=%body, backend_config={"known_trip_count":{"n":"3"}}'
  assert hlo.read(LOOP.replace("body=%body", known)).times["body"] == 3


def test_attributes_of_a_kernel_may_have_lines_of_their_own():
  """What comes after them in the computation counts, too."""
  kernel = """  %k = f32[8,4]{1,0} custom-call(%a), custom_call_target="tpu_custom_call", frontend_attributes={meta={
"xprof_metadata":"{\\"block_q\\": 512}"
}}, metadata={op_name="jit(f)/kernel"}
"""
  program = hlo.read(LOOP.replace("  %c = ", kernel + "  %c = "))
  assert program.kernels() == 5
  assert program.matrix_flops() == hlo.read(LOOP).matrix_flops()
  assert len(program.collectives()) == 1


def test_what_goes_between_slices_is_read_from_what_the_host_is_given():
  """A TPU adds up inside its slice, and its host sends the part that is its own to the other slices."""
  send = (
    "  %send = (f32[1,2,128]{2,1,0:T(1,128)}, u32[], token[]) send(%b, %token), channel_id=3, is_host_transfer=true, "
    'frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime",'
    '_xla_megascale_reduce_operation="SUM",_xla_megascale_target="{1,2}x{0:3}",'
    '_xla_megascale_transfer_type="ALL_REDUCE"}\n'
  )
  recv = send.replace("%send = ", "%recv = ").replace(" send(%b, ", " recv(")
  inside, over = hlo.read(LOOP.replace("  %c = ", send + recv + "  %c = ")).collectives()
  inside, over = (inside, over) if over.between == "slices" else (over, inside)
  assert (over.kind, over.between, over.bytes, over.devices, over.times) == ("all-reduce", "slices", 1024, 2, 5)
  assert inside.between == "devices"
  (one,) = hlo.read(LOOP.replace("  %c = ", send.replace("{1,2}", "{0,2:4}") + "  %c = ")).collectives()[:1]
  assert one.devices == 4


@pytest.mark.parametrize(
  ("groups", "size"),
  [
    ("{{0,1,2},{3,4,5}}", 3),
    ("[2,8]<=[4,4]T(1,0)", 8),
    ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", 2),
    ("mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}", 8),
    ("mesh['axis_0'=2,'axis_1'=4], device_ids=([2,4]T(1,0)) {'axis_1'}", 4),
    ("mesh['axis_0'=8] {'axis_0':(1)2}", 2),
    ("{}", 0),
  ],
)
def test_sizes_of_groups(groups, size):
  assert hlo.group_size(f", channel_id=1, replica_groups={groups}, use_global_device_ids=true") == size


def convolution(shape: str, left: str, right: str, rest: str) -> float:
  text = f"""HloModule c

ENTRY %main (l: {left}, r: {right}) -> {shape} {{
  %l = {left} parameter(0)
  %r = {right} parameter(1)
  ROOT %out = {shape} convolution(%l, %r), {rest}
}}
"""
  return hlo.read(text).matrix_flops()


def test_products_as_a_tpu_writes_them():
  """Heads and rows are axes of a convolution there, of which only one tap meets an input."""
  assert convolution("f32[11,64]", "bf16[11,32]", "bf16[32,64]", "dim_labels=bf_io->bf") == 2 * 11 * 32 * 64
  batched = "window={size=11x4 stride=10x3 lhs_dilate=11x4}, dim_labels=0b1f_0o1i->01bf"
  assert convolution("f32[11,4,24,20]", "bf16[11,24,4,16]", "bf16[11,20,4,16]", batched) == 2 * 11 * 4 * 24 * 20 * 16
  window = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"  # a true convolution: two taps fall on padding
  assert convolution("f32[2,5,7]", "f32[2,5,6]", "f32[3,6,7]", window) == 2 * 2 * 7 * 6 * (3 * 5 - 2)


@pytest.mark.parametrize("unroll", [1, 3])
def test_a_compiled_scan_and_its_gradient(unroll):
  layers, width, rows = 6, 16, 8

  def loss(weights, x):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights, unroll=unroll)[0].sum()

  step = jax.jit(jax.grad(loss)).lower(jnp.ones((layers, width, width)), jnp.ones((rows, width))).compile()
  product = 2 * rows * width * width
  expected = layers * product * 3 - product  # the first layer's input has no gradient, but a loop does not know
  assert hlo.read(step.as_text()).matrix_flops() in (expected, expected + product)


@functools.cache
def summed_over_devices() -> hlo.Program:
  mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
  split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))

  def f(x):  # three turns, each with a sum over devices
    return jax.lax.fori_loop(0, 3, lambda i, y: y + jnp.sum(x * y[None], axis=0), jnp.ones(50))

  lowered = jax.jit(f).lower(jax.ShapeDtypeStruct((16, 50), jnp.float32, sharding=split))
  return hlo.read(lowered.compile().as_text())


def test_compiled_sums_over_devices():
  (sent,) = summed_over_devices().collectives()
  assert (sent.kind, sent.bytes, sent.times) == ("all-reduce", 200, 3)
  assert sent.devices in (0, 8)
