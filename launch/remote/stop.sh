#!/bin/bash
# Stops the run on this host by SIGTERM and waits until it has saved; it does not begin again.
set -eu
sudo systemctl disable --quiet bidir.service 2> /dev/null || true
sudo systemctl stop bidir.service
echo "launch: $(hostname) has stopped"
