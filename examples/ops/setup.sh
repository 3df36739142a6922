#!/usr/bin/env bash
# Installs promtool, which the tests of the alerts need, on a Debian machine, as
# root. Does nothing if it is there already.
set -euo pipefail

if command -v promtool >/dev/null; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends prometheus # also starts a server where services are started on installation
if ! command -v promtool >/dev/null; then
	echo 'setup.sh: prometheus is installed, but promtool is not where it should be' >&2
	exit 1
fi
