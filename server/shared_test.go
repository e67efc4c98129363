package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/server"
)

var (
	addressLine = regexp.MustCompile(`(?m)^address  (\S+)$`)
	tokenLine   = regexp.MustCompile(`(?m)^token    (\S+)`)
)

// whoami returns the owner of a token.
func whoami(address, token string) error {
	req, err := http.NewRequest(http.MethodGet, address+"/api/v1/whoami", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

func TestServersShareAPostgreSQLDatabase(t *testing.T) {
	t.Parallel()
	db := pg.Empty(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := server.NewKey(keys, server.KeyFirst); err != nil {
		t.Fatal(err)
	}
	cfg := func() server.Config {
		return server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0", Database: db.URL, KeyFile: keys}
	}
	if err := server.Run(t.Context(), cfg()); err == nil || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("a database without a schema: %v", err)
	}
	if err := server.Migrate(t.Context(), server.DatabaseConfig{Database: db.Owner}); err != nil {
		t.Fatal(err)
	}
	keyless := cfg()
	keyless.KeyFile = ""
	if err := server.Run(t.Context(), keyless); err == nil || !strings.Contains(err.Error(), "--key-file") {
		t.Errorf("without keys: %v", err)
	}
	first, stopFirst := startServer(t, cfg())
	second, stopSecond := startServer(t, cfg())
	token := tokenLine.FindStringSubmatch(first.String())
	if token == nil || tokenLine.MatchString(second.String()) {
		t.Fatalf("want one token of the two:\n%s\n%s", first, second)
	}
	for _, said := range []*banner{first, second} {
		if err := whoami(addressLine.FindStringSubmatch(said.String())[1], token[1]); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(stopFirst(), stopSecond()); err != nil {
		t.Error(err)
	}
}

// covers: O5
func TestServerMovesToPostgreSQL(t *testing.T) {
	t.Parallel()
	old := server.Config{DataDir: t.TempDir(), Listen: "127.0.0.1:0"}
	said, stop := startServer(t, old)
	token := tokenLine.FindStringSubmatch(said.String())[1]
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var moved strings.Builder
	if err := server.Backup(t.Context(), server.DatabaseConfig{DataDir: old.DataDir}, &moved); err != nil {
		t.Fatal(err)
	}
	db := pg.Database(t)
	if err := server.Restore(t.Context(), server.DatabaseConfig{Database: db.Owner}, strings.NewReader(moved.String())); err != nil {
		t.Fatal(err)
	}
	said, stop = startServer(t, server.Config{
		DataDir: t.TempDir(), Listen: "127.0.0.1:0", Database: db.URL, KeyFile: filepath.Join(old.DataDir, "keys"),
	})
	if tokenLine.MatchString(said.String()) {
		t.Error("a server that has moved is treated as a new one")
	}
	if err := whoami(addressLine.FindStringSubmatch(said.String())[1], token); err != nil {
		t.Errorf("the token of before: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
