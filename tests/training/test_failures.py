"""What passes by itself and what is a mistake, by the errors of libraries, whether or not they are installed."""

import errno
import http.client
import socket
import urllib.error

import jax
import pytest

from data import places
from training import checkpoint, failures


def of(name: str, *bases: type, **attributes) -> Exception:
  """Returns an error as the library raises it whose class has that name."""
  module, _, name = name.rpartition(".")
  kinds = tuple(type(base.rpartition(".")[2], (Exception,), {"__module__": base.rpartition(".")[0]}) for base in bases)
  error = type(name, kinds or (Exception,), {"__module__": module})("said")
  for key, value in attributes.items():
    setattr(error, key, value)
  return error


def response(status: int) -> object:
  return type("Response", (), {"status_code": status})()


PASSING = [
  TimeoutError(),
  ConnectionResetError(),
  ConnectionRefusedError(),
  OSError(errno.ENETUNREACH, "Network is unreachable"),
  OSError(errno.EHOSTUNREACH, "No route to host"),
  OSError(errno.EIO, "Input/output error"),
  OSError(errno.ESTALE, "Stale file handle"),
  socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
  urllib.error.HTTPError("https://x", 503, "Service Unavailable", {}, None),
  http.client.IncompleteRead(b""),
  of("gcsfs.retry.HttpError", code=503),
  of("gcsfs.retry.HttpError", code="429"),
  of("gcsfs.retry.ChecksumError"),
  of("aiohttp.client_exceptions.ClientResponseError", status=500),
  of("aiohttp.client_exceptions.ServerDisconnectedError", "aiohttp.client_exceptions.ClientConnectionError"),
  of("requests.exceptions.ProxyError", "requests.exceptions.ConnectionError", response=None),  # gcsfs's for a 502
  of("requests.exceptions.HTTPError", response=response(504)),
  of("google.auth.exceptions.TransportError"),
  of("google.auth.exceptions.RefreshError", retryable=True),
  of("google.api_core.exceptions.TooManyRequests", code=429),
  ValueError('UNAVAILABLE: Error reading "gs://x": HTTP response code: 503'),
  ValueError("ABORTED: All 32 retry attempts failed: HTTP response code: 429"),
]
MISTAKES = [
  ValueError("config.steps=0 must be at least 1"),
  ValueError("NOT_FOUND: no such key"),
  FileNotFoundError(errno.ENOENT, "No such file"),
  PermissionError(errno.EACCES, "Permission denied"),
  OSError(errno.ENOSPC, "No space left on device"),
  OSError("Forbidden: gs://x"),
  BrokenPipeError(errno.EPIPE, "Broken pipe"),  # of `train.py | head`
  RuntimeError("a bug"),
  KeyError("code"),
  urllib.error.HTTPError("https://x", 404, "Not Found", {}, None),
  of("gcsfs.retry.HttpError", code=401),
  of("gcsfs.retry.HttpError", code=None),
  of("aiohttp.client_exceptions.InvalidURL", "aiohttp.client_exceptions.ClientError"),
  of("requests.exceptions.HTTPError", response=response(403)),
  of("google.auth.exceptions.DefaultCredentialsError", retryable=False),
  of("ours.Ended", code=503),  # a status of something else
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_the_network_does_passes(error):
  assert failures.passes(error)
  assert failures.elsewhere(error)


@pytest.mark.parametrize("error", MISTAKES, ids=repr)
def test_a_mistake_does_not(error):
  assert not failures.passes(error)
  assert not failures.elsewhere(error)


def raised(inner: BaseException, outer: BaseException) -> BaseException:
  """Returns `outer` as it is when raised, from None, while `inner` was handled."""
  try:
    try:
      raise inner
    except BaseException:
      raise outer from None
  except BaseException as error:
    return error


def test_what_an_error_was_raised_for_counts_but_not_behind_what_was_found_wrong():
  wrapped = raised(TimeoutError(), OSError("a checkpoint could not be written"))
  assert failures.passes(wrapped)
  assert failures.passes(raised(wrapped, RuntimeError("release unlocked lock")))
  assert not failures.passes(raised(TimeoutError(), ValueError("no such kernel")))


def test_a_process_lost_while_a_checkpoint_is_written_is_a_lost_process():
  barrier = jax.errors.JaxRuntimeError("DEADLINE_EXCEEDED: Barrier timed out")
  error = raised(raised(barrier, TimeoutError("async_write_complete")), OSError("a checkpoint could not be written"))
  assert failures.loses(error)
  memory = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
  assert not failures.loses(memory)
  assert failures.elsewhere(memory)


@pytest.mark.parametrize("inner", [of("gcsfs.retry.HttpError", code=503), TimeoutError()], ids=repr)
def test_a_bucket_that_cannot_be_reached_just_now_passes(monkeypatch, inner):
  def fail(self):
    raise inner

  monkeypatch.setattr(type(places.epath.Path("gs://bucket/run")), "exists", fail)
  with pytest.raises(OSError, match="gs://bucket/run cannot be reached") as found:
    places.reach("gs://bucket/run")
  assert failures.passes(found.value)


@pytest.mark.parametrize(
  "error",
  [
    ValueError("UNAVAILABLE: HTTP response code: 503"),
    TimeoutError(),
    jax.errors.JaxRuntimeError("UNAVAILABLE: Socket closed"),
    jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
  ],
  ids=repr,
)
def test_no_checkpoint_is_called_damaged_for_what_has_failed_elsewhere(error):
  def read(step: int):
    if step == 20:
      raise error
    return step

  with pytest.raises(type(error)) as found:
    checkpoint.newest_whole("folder", [10, 20], read, "fix")
  assert found.value is error


def test_a_checkpoint_that_cannot_be_read_is_passed_over():
  def read(step: int):
    if step == 20:
      raise ValueError("DATA_LOSS: no such chunk")
    return step

  assert checkpoint.newest_whole("folder", [10, 20], read, "fix") == (10, {20: "DATA_LOSS: no such chunk"})
