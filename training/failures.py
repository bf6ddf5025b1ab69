"""What an error says: that something is wrong with the command, or that the network, a bucket or another process has
failed, and the same command may go on.

Libraries are known by name, for none of them need be installed. They have tried again before they raise: gcsfs six
times (`gcsfs.retry.retry_request`, but for some time-outs), TensorStore, which reads and writes checkpoints, 32 times
(its `gcs_request_retries`).
"""

import errno
import re
import socket
from collections.abc import Iterator
from http import HTTPStatus

import jax

_ERRNOS = {
  errno.ECONNABORTED,
  errno.ECONNREFUSED,
  errno.ECONNRESET,
  errno.EHOSTDOWN,
  errno.EHOSTUNREACH,
  errno.EIO,  # of a mounted bucket, and of disks over the network
  errno.ENETDOWN,
  errno.ENETRESET,
  errno.ENETUNREACH,
  errno.ESTALE,
  errno.ETIMEDOUT,
}
_TYPES = (TimeoutError, ConnectionError, socket.gaierror)
_STATUSES = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}  # and all from 500
# Library → its errors that no server has answered with a status, by name, with all that are derived from them.
_UNANSWERED = {
  "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
  "gcsfs": {"ChecksumError"},
  "google": {"TransportError"},
  "http": {"IncompleteRead"},
  "httpx": {"NetworkError", "ProxyError", "RemoteProtocolError", "TimeoutException"},
  "requests": {"ChunkedEncodingError", "ConnectionError", "Timeout"},
  "urllib3": {"ProtocolError", "TimeoutError"},
}
_ANSWERED = {*_UNANSWERED, "huggingface_hub", "urllib"}
_TENSORSTORE = re.compile("(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED): ")  # of a ValueError


def passes(error: BaseException) -> bool:
  """Returns whether an error, or what it was raised for, is of the network or of a bucket, and may be gone later."""
  return any(map(_passes, _causes(error)))


def loses(error: BaseException) -> bool:
  """Returns whether an error of one process of several, or what it was raised for, says that another is gone."""
  return any(
    isinstance(one, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(one) for one in _causes(error)
  )


def elsewhere(error: BaseException) -> bool:
  """Returns whether an error that came while a file was read or written says nothing of the file."""
  return passes(error) or any(isinstance(one, (jax.errors.JaxRuntimeError, MemoryError)) for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
  """Yields an error and those behind it; behind what was found wrong, none matters."""
  seen = set()
  while error is not None and id(error) not in seen:
    yield error
    seen.add(id(error))
    if isinstance(error, (ValueError, FloatingPointError)):
      return
    error = error.__cause__ or error.__context__


def _passes(error: BaseException) -> bool:
  if isinstance(error, BrokenPipeError):  # nobody reads what is printed
    return False
  if isinstance(error, _TYPES) or (isinstance(error, OSError) and error.errno in _ERRNOS):
    return True
  if isinstance(error, ValueError) and _TENSORSTORE.match(str(error)):
    return True
  kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]
  if not any(library in _ANSWERED for library, _ in kinds):
    return False
  if (status := _status(error)) is not None:
    return status in _STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR
  return bool(getattr(error, "retryable", False)) or any(
    name in _UNANSWERED.get(library, ()) for library, name in kinds
  )


def _status(error: BaseException) -> int | None:
  """Returns the status of the HTTP response that an error is about."""
  for value in (
    getattr(error, "status", None),
    getattr(error, "code", None),
    getattr(getattr(error, "response", None), "status_code", None),
  ):
    if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
      return int(value)
  return None
