#!/bin/bash
# Prints how the run stands on this host, in one line: launch: HOST STATE, and what it said last.
set -u
log=$HOME/bidir/train.log
show() { systemctl show bidir.service --property="$1" --value; }
case $(show LoadState)/$(show ActiveState) in
  not-found/*) state=absent ;;
  */active | */deactivating) state=running ;;
  */activating) state=restarting ;;
  */failed) state=failed ;;
  *)
    state=finished
    # In what this beginning has said; a host that does not report says little else.
    awk '/^launch: beginning/ { said = 0 } /^stopped by SIGTERM/ { said = 1 } END { exit !said }' "$log" 2> /dev/null &&
      state=stopped
    ;;
esac
# What train.py says of a failure, or how far it is; not what libraries have to say.
said=$(grep -E '^(error:|step |done:|nothing left|stopped by|compiling|launch: beginning)' "$log" 2> /dev/null | tail -n 1)
echo "launch: $(hostname) $state: $said"
