package postgres

import (
	"net/url"
	"strconv"
	"testing"
)

// Standby is a server that replicates another one and is read-only until it is promoted.
type Standby struct{ keeper *keeper }

// Standby starts a standby of this server, which must have a database already. It stops at the end of the test.
func (s *Server) Standby(t testing.TB) *Standby {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		t.Fatal("starting a standby: there is no primary")
	}
	k, err := hireKeeper(s.keeper)
	if err != nil {
		t.Fatalf("starting a standby: %v", err)
	}
	t.Cleanup(func() {
		if err := k.dismiss(); err != nil {
			t.Errorf("stopping the standby: %v", err)
		}
	})
	return &Standby{keeper: k}
}

// Promote makes the standby a primary, which accepts writes.
func (s *Standby) Promote(t testing.TB) {
	t.Helper()
	if err := s.keeper.order("promote"); err != nil {
		t.Fatalf("promoting the standby: %v", err)
	}
}

// Before returns a connection string with the standby as the first host, followed by those of dsn.
func (s *Standby) Before(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("host", s.keeper.dir+","+q.Get("host"))
	q.Set("port", strconv.Itoa(s.keeper.port)+","+q.Get("port"))
	u.RawQuery = q.Encode()
	return u.String()
}
