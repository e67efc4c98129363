package gitserver

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// failure is an injected failure of a server.
type failure struct {
	status     int
	retryAfter time.Duration
}

// SetFailure makes every request fail with status, and with a Retry-After header if retryAfter is not zero. A
// status of zero ends it.
func (s *Server) SetFailure(status int, retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = nil
	if status != 0 {
		s.failure = &failure{status: status, retryAfter: retryAfter}
	}
}

// fail reports whether it has answered a request.
func (s *Server) fail(w http.ResponseWriter) bool {
	s.mu.Lock()
	f := s.failure
	s.mu.Unlock()
	if f == nil {
		return false
	}
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(f.retryAfter.Seconds())))
	}
	http.Error(w, "failing on purpose", f.status)
	return true
}

// SetHook installs script as a hook of a repository, such as pre-receive.
func (s *Server) SetHook(repo, name, script string) error {
	path := filepath.Join(s.Dir(repo), "hooks", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the hook %q: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("making the hook %q: %w", name, err)
	}
	return nil
}
