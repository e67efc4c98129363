#!/usr/bin/env bash
# Runs tests on real things, with the race detector: hack/test.sh [FLAG …] PACKAGE …
# The control plane and the programs that renders are compared with are built and what is missing is installed first.
# Clusters and databases are started by the test binaries that want them and end with them; everything they write is
# below one folder, which goes at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/need.sh
KEDGE_KUBE_BIN=$(hack/kube/build.sh)
export KEDGE_KUBE_BIN
export KUBEBUILDER_ASSETS=$KEDGE_KUBE_BIN
KEDGE_RENDER_TOOLS=$(hack/rendertools/build.sh)
export KEDGE_RENDER_TOOLS
# A cluster of the developer's must not be reached by accident.
unset KUBECONFIG

TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/kedge-test.XXXXXX")
export TMPDIR
# PostgreSQL refuses to run as root, so root's tests run it as another user, who has to make and remove folders here as
# in any folder for temporary files.
chmod 1777 "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

# The race detector slows properties down tenfold: fewer checks here, the full hundred by a plain go test.
export RAPID_CHECKS=${RAPID_CHECKS:-20}

# SQLite is C in the form of Go, with its own locks: the race detector has nothing to find in it, and would take most of
# the time of every test that has a database.
# Two packages at once: each may have a control plane of its own. The timeout is for one package.
CGO_ENABLED=1 go test -race '-gcflags=modernc.org/libc/...=-race=false' '-gcflags=modernc.org/sqlite/lib=-race=false' -p 2 -timeout 20m "$@" </dev/null
