"""Ctrl-C that is not lost. Python drops what is raised in a finalizer or in a weak reference's callback, and a library
that is stopped halfway may raise something else; so the signal is remembered, too."""

import signal
import warnings

_heard = False


def listen() -> None:
  """Makes Ctrl-C raise KeyboardInterrupt, as before, and be remembered. Where it is ignored (a shell's background
  jobs), it stays so."""
  if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _hear)


def end_at_once() -> None:
  """Makes the next Ctrl-C end the process without a word: what the first one raised is being reported."""
  if signal.getsignal(signal.SIGINT) is _hear:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def heard() -> bool:
  """Returns whether Ctrl-C has come since `listen`: then whatever ends the run is its consequence."""
  return _heard


def _hear(signum, frame):
  global _heard
  del signum, frame
  _heard = True
  warnings.simplefilter("ignore")  # of coroutines never awaited, and the like
  raise KeyboardInterrupt
