#!/usr/bin/env bash
# Checks for the programs that tests need in addition to Go and git:
#   PostgreSQL   for the tests of the second store
#   Chromium     for the tests of the console in a real browser
#   Redis        for the tests with a real Argo CD, which keeps its cache there
#   ip           for a test that runs the server in a network namespace without a route to the cluster
# As root on Debian, it installs missing packages. Elsewhere, it prints their names and fails.
set -euo pipefail

has_postgresql() {
  command -v initdb >/dev/null && return
  local initdb
  for initdb in /usr/lib/postgresql/*/bin/initdb; do
    if [ -x "$initdb" ]; then return 0; fi
  done
  return 1
}
has_chromium() { command -v chromium; }
has_compiler() { command -v "${CC:-gcc}" || command -v cc || command -v clang; }

missing=()
has_postgresql >/dev/null || missing+=(postgresql)
has_chromium >/dev/null || missing+=(chromium)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2)
command -v git >/dev/null || missing+=(git)
has_compiler >/dev/null || missing+=(gcc libc6-dev)
if [ "${#missing[@]}" -eq 0 ]; then exit 0; fi

if [ "$(id -u)" -ne 0 ] || [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
  echo "tests need missing programs. The Debian packages are: ${missing[*]}" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "installing packages that tests need: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  # Tests start their own servers. Prevent the package from creating and starting one for the whole machine.
  mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
fi
needs_redis=false
if [[ " ${missing[*]} " == *" redis-server "* ]]; then needs_redis=true; fi
if $needs_redis && [ ! -e /usr/sbin/policy-rc.d ]; then
  # The same for Redis: this file makes a package start no service. It exists during the installation only.
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod +x /usr/sbin/policy-rc.d
fi
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >&2
if $needs_redis; then update-rc.d redis-server disable >&2; fi
