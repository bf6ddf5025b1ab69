"""Quiet for background threads whose failure the main thread reports."""

import errno
import functools
import logging
import sys
import threading

from training import interrupts


def is_aftermath(error: BaseException | None) -> bool:
  """Returns whether an error says no more than what is reported already: the run was interrupted, a read or a save of
  Orbax failed and its event loop is gone, or the disk is full."""
  if interrupts.heard():
    return True
  if isinstance(error, OSError):
    # The second is of TensorBoard's writer, closed after its disk was full.
    return error.errno in (errno.ENOSPC, errno.EDQUOT) or str(error) == "handle is closed"
  return isinstance(error, RuntimeError) and "Event loop is closed" in str(error)


@functools.cache
def hush() -> None:
  """Makes background threads and exit handlers print no traceback of an aftermath; a full disk gives hundreds."""

  def quieter(before):
    return lambda args: None if is_aftermath(args.exc_value) else before(args)

  sys.unraisablehook = quieter(sys.unraisablehook)
  threading.excepthook = quieter(threading.excepthook)
  logging.getLogger("asyncio").setLevel(logging.CRITICAL)
