#!/usr/bin/env bash
# Runs tests with real components and the race detector: hack/test.sh [FLAG …] PACKAGE …
# It first builds the control plane, the render tools, an older kubectl and Argo CD, and installs missing packages. Test binaries start the
# clusters and databases that they need and stop them at the end. All files are in one folder, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/need.sh
KEDGE_KUBE_BIN=$(hack/kube/build.sh)
export KEDGE_KUBE_BIN
export KUBEBUILDER_ASSETS=$KEDGE_KUBE_BIN
KEDGE_RENDER_TOOLS=$(hack/rendertools/build.sh)
export KEDGE_RENDER_TOOLS
KEDGE_OLD_KUBECTL=$(hack/kubectl/build.sh)
export KEDGE_OLD_KUBECTL
KEDGE_ARGOCD_BIN=$(hack/argocd/build.sh)
export KEDGE_ARGOCD_BIN
# Tests must not reach a cluster of the developer by accident.
unset KUBECONFIG

TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/kedge-test.XXXXXX")
export TMPDIR
# PostgreSQL refuses to run as root. Tests of root run it as another user, who needs to create and remove folders here.
chmod 1777 "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

# The race detector makes property tests ten times slower. Run fewer checks here; a plain go test runs the full hundred.
export RAPID_CHECKS=${RAPID_CHECKS:-20}

# SQLite is translated C code with its own locks. The race detector finds nothing in it and would use most of the time of
# every test with a database.
# Run two packages at a time, because each can have its own control plane. The timeout applies to one package.
CGO_ENABLED=1 go test -race '-gcflags=modernc.org/libc/...=-race=false' '-gcflags=modernc.org/sqlite/lib=-race=false' -p 2 -timeout 40m "$@" </dev/null
