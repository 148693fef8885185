#!/bin/sh
# Bounds the file of what the hypervisor saw: once beyond LIMIT bytes it becomes flows.json.1, in the place of the last.
# Usage: rotate.sh LIMIT
set -eu
cd /var/log/glasslab
[ "$(stat -c %s flows.json)" -gt "$1" ] || exit 0
mv flows.json flows.json.1
install -m 0640 -o glasslab-flows -g glasslab-witness /dev/null flows.json
systemctl kill --signal=HUP glasslab-witness-flows.service
