#!/usr/bin/env bash
# Installs what the tests need beside Go modules, on a Debian machine, as root.
# Does nothing if it is there already.
set -euo pipefail

have_postgres() {
	command -v postgres >/dev/null && command -v initdb >/dev/null && return
	compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
}

if have_postgres; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends postgresql
if ! have_postgres; then
	echo 'setup.sh: postgresql is installed, but its programs are not where they should be' >&2
	exit 1
fi
