#!/bin/bash
# What the service runs: train.py with the arguments that run.sh wrote down. Its status is train.py's, but for a run that
# was stopped because another host was asked to, or a process that somebody else has ended: this service was not asked,
# so it ends with 75 and begins again.
set -u
home=$HOME/bidir
export PYTHONUNBUFFERED=1 JAX_COMPILATION_CACHE_DIR=$home/cache
mapfile -t arguments < "$home/arguments"

asked=
child=
trap 'asked=yes; test -z "$child" || kill -TERM "$child" 2> /dev/null' TERM
run=$(bash "$home/checkout/launch/remote/identity.sh" "$home/arguments")
echo "launch: beginning ${run:--} on $(hostname), $(date --utc +%FT%TZ)"
"$home/venv/bin/python" "$home/checkout/train.py" --distributed "${arguments[@]}" &
child=$!
test -z "$asked" || kill -TERM "$child"
wait "$child"
status=$?
if test -n "$asked"; then
  wait "$child" # the first was cut short by the signal
  status=$?
elif test "$status" = 143; then
  status=75
elif test "$status" = 0 &&
  awk '/^launch: beginning/ { said = 0 } /^stopped by SIGTERM/ { said = 1 } END { exit !said }' "$home/train.log"; then
  status=75
fi
echo "launch: ended with status $status"
exit "$status"
