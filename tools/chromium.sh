#!/bin/sh
# Installs Debian's Chromium for the tests of the report's page, where there is none.
# Meant for CI, as root; elsewhere those tests are skipped with a message.
set -eu
if command -v chromium >/dev/null 2>&1; then
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "tools/chromium.sh: no chromium, and only root can install it: its tests are skipped" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
