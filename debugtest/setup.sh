#!/usr/bin/env bash
# Installs what the tests need beside Go modules, on a Debian machine, as root:
# a browser, and a font for it. Does nothing if they are there already.
set -euo pipefail

have_browser() {
	command -v chromium >/dev/null
}

have_font() {
	compgen -G '/usr/share/fonts/truetype/dejavu/*.ttf' >/dev/null
}

if have_browser && have_font; then
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends chromium fonts-dejavu-core
if ! have_browser; then
	echo 'setup.sh: chromium is installed, but its program is not where it should be' >&2
	exit 1
fi
