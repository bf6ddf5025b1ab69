#!/bin/bash
# Prints how the run stands on this host, in one line: launch: HOST STATE RUN: what it said last. RUN is the one that has
# begun last (identity.sh), or - where none has.
set -u
show() { systemctl show bidir.service --property="$1" --value; }
# How the last beginning has ended, and what train.py or Python says of it; not what libraries have to say.
{
  read -r run
  read -r end
  read -r said
} < <(awk '
  /^launch: beginning / { run = $3; end = "" }
  /^stopped by SIGTERM/ { end = "stopped" }
  /^launch: ended with status / {
    if ($5 == 143) end = "stopped"
    if ($5 == 0 && end == "") end = "finished"
    if ($5 != 0 && said ~ /^launch: beginning/) said = $0
  }
  /^(error:|step |done:|nothing left|stopped by|compiling|launch: beginning|Fatal Python error:)/ { said = $0 }
  /^[A-Za-z0-9_.]+(Error|Exception|Interrupt)(:|$)/ { said = $0 }
  END { print run; print end; print said }' "$HOME/bidir/train.log" 2> /dev/null)

case $(show LoadState)/$(show ActiveState) in
  not-found/*) state=absent ;;
  */active | */deactivating) state=running ;;
  */activating) state=restarting ;;
  */failed) state=failed ;;
  *)
    # It is at rest. A service that nobody has stopped begins again when the host is back.
    state=${end:-stopped}
    if test -z "$run"; then
      state=absent
    elif test "$state" = stopped && test "$(show UnitFileState)" = enabled; then
      state=restarting
    fi
    ;;
esac
echo "launch: $(hostname) $state ${run:--}: $said"
