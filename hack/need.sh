#!/usr/bin/env bash
# Sees to it that the programs are there that tests use beside Go and git:
#   PostgreSQL   the second store is tested against a real one
#   Chromium     the console is tested in a real browser
#   ip           a test runs the server in a network namespace that has no way into the cluster
# As root on Debian what is missing is installed; elsewhere the packages are named and it fails.
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
command -v ip >/dev/null || [ -x /usr/sbin/ip ] || missing+=(iproute2)
command -v git >/dev/null || missing+=(git)
has_compiler >/dev/null || missing+=(gcc libc6-dev)
if [ "${#missing[@]}" -eq 0 ]; then exit 0; fi

if [ "$(id -u)" -ne 0 ] || [ ! -e /etc/debian_version ] || ! command -v apt-get >/dev/null; then
  echo "tests need programs that are not here. The Debian packages are: ${missing[*]}" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "installing what tests need: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  # Tests start servers of their own; the package must not make and start one for the whole machine.
  mkdir -p /etc/postgresql-common
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
fi
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >&2
