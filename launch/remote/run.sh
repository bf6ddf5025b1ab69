#!/bin/bash
# Starts train.py as a service of this host: it outlives ssh, gets SIGTERM when the host is taken away, and begins again
# when the host is back or the run has lost another process. The same command continues a run; one at work goes on, unless
# it is of another commit or other arguments.
#   run.sh TRAIN_ARGUMENTS …
set -eu
home=$HOME/bidir
remote=$home/checkout/launch/remote
test -x "$home/venv/bin/python" && test -f "$home/checkout/COMMIT" || {
  echo "launch: nothing is installed on $(hostname); install first" >&2
  exit 1
}
printf '%s\n' "$@" > "$home/arguments.new"
run=$(bash "$remote/identity.sh" "$home/arguments.new")
begun=$(awk '/^launch: beginning / { run = $3 } END { print run }' "$home/train.log" 2> /dev/null || true)
if systemctl is-active --quiet bidir.service && test "$run" = "$begun"; then
  echo "launch: $(hostname) is at work already"
  exit 0
fi
mv "$home/arguments.new" "$home/arguments"
sed -e "s|@USER@|$(id --user --name)|" -e "s|@HOME@|$HOME|g" "$remote/bidir.service" |
  sudo tee /etc/systemd/system/bidir.service > /dev/null
sudo systemctl daemon-reload
sudo systemctl enable --quiet bidir.service
sudo systemctl reset-failed bidir.service 2> /dev/null || true
sudo systemctl restart bidir.service
echo "launch: $(hostname) has started"
