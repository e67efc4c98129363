package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/rig"
)

// host is the machine that the server runs on: its disk, its port and its database outlive it.
type host struct {
	tb      testing.TB
	binary  string
	dir     string
	addr    string
	prepare newDatabase
	db      database
	running *rig.Server // nil while it is down
	admin   string      // token
	backups int
	planted string // see plan
}

func newHost(tb testing.TB, p plan) *host {
	tb.Helper()
	h := &host{tb: tb, binary: p.binary, dir: tb.TempDir(), addr: "127.0.0.1:0", prepare: p.store, planted: p.planted}
	runServer(tb, p.binary, "new-key", "--data-dir", h.dir)
	h.db = p.store(tb, p.binary, h.dir)
	h.start()
	h.admin = h.running.Token
	_, h.addr, _ = strings.Cut(h.running.URL, "://")
	tb.Cleanup(func() {
		if h.running != nil {
			h.running.Kill()
		}
	})
	return h
}

// start starts the server if it is down: on the same port, with the same keys.
func (h *host) start() {
	h.tb.Helper()
	if h.running != nil {
		return
	}
	ctx, cancel := context.WithTimeout(h.tb.Context(), patience)
	defer cancel()
	var err error
	h.running, err = rig.StartServer(ctx, rig.ServerConfig{
		Binary: h.binary, Listen: h.addr, DataDir: h.dir,
		Args: append(h.db.serve(), "--key-file", filepath.Join(h.dir, "keys"), "--git-poll-interval", "2s", "--api-rate", "10000"), // the test polls more than a client may
		Wrap: func(cmd *exec.Cmd) *exec.Cmd {
			cmd.Env = append(os.Environ(), plantedEnv+"="+h.planted)
			return cmd
		},
	})
	if err != nil {
		h.tb.Fatal(err)
	}
}

// kill is kill −9.
func (h *host) kill() {
	if h.running != nil {
		h.running.Kill()
		h.running = nil
	}
}

// backup creates a backup, with the server up or down, and returns its file.
func (h *host) backup() string {
	h.tb.Helper()
	h.backups++
	file := filepath.Join(h.dir, fmt.Sprintf("backup-%d", h.backups))
	runServer(h.tb, h.binary, append([]string{"backup", "--data-dir", h.dir, "--out", file}, h.db.serve()...)...)
	return file
}

// restore restores a backup into a new database and starts the server with it.
func (h *host) restore(file string) {
	h.tb.Helper()
	h.kill()
	h.db = h.prepare(h.tb, h.binary, h.dir)
	runServer(h.tb, h.binary, append([]string{"restore", "--data-dir", h.dir, "--in", file}, h.db.restore()...)...)
	h.start()
}

// answer is the result of a request.
type answer struct {
	code int // 0 when there was no answer
	body []byte
}

func (a answer) ok() bool      { return a.code >= 200 && a.code < 300 }
func (a answer) refused() bool { return a.code >= 400 && a.code < 500 }

func (a answer) into(out any) error { return json.Unmarshal(a.body, out) }

// send sends a request to /api/v1 + path. header may be nil.
func (h *host) send(ctx context.Context, token, method, path string, in any, header http.Header) (answer, error) {
	if h.running == nil {
		return answer{}, errors.New("the server is down")
	}
	return send(ctx, h.running, token, method, path, in, header)
}

func send(ctx context.Context, to *rig.Server, token, method, path string, in any, header http.Header) (answer, error) {
	var content io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.URL+"/api/v1"+path, content)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := to.HTTP.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	return answer{code: res.StatusCode, body: body}, nil
}

// must sends a request as the admin that must succeed.
func (h *host) must(method, path string, in, out any) {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(h.tb.Context(), patience)
	defer cancel()
	a, err := h.send(ctx, h.admin, method, path, in, nil)
	switch {
	case err != nil:
		h.tb.Fatalf("%s %s: %v", method, path, err)
	case !a.ok():
		h.tb.Fatalf("%s %s: %d: %s", method, path, a.code, a.body)
	case out != nil:
		if err := a.into(out); err != nil {
			h.tb.Fatalf("%s %s: %v", method, path, err)
		}
	}
}
