package gitsource_test

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// tunnel handles CONNECT like a proxy, but always connects to the same address.
func tunnel(t *testing.T, w http.ResponseWriter, r *http.Request, to string) {
	t.Helper()
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	remote, err := net.Dial("tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	defer remote.Close()
	w.WriteHeader(http.StatusOK)
	local, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer local.Close()
	go func() {
		_, _ = io.Copy(remote, buffered)
	}()
	_, _ = io.Copy(local, remote)
}
