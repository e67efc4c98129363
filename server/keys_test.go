package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysAreRotatedAndTheServersOwnStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys")
	read := func() keys {
		t.Helper()
		k, err := loadKeys(Config{KeyFile: path})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	add := func(place KeyPlace) {
		t.Helper()
		if err := NewKey(path, place); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := loadKeys(Config{KeyFile: path}); err == nil {
		t.Fatal("a missing key file from the configuration was created")
	}
	add(KeyIfNone)
	first := read()
	add(KeyIfNone)
	if again := read(); again.ring.KeyID() != first.ring.KeyID() {
		t.Error("a second start created a key")
	}
	add(KeyStandby)
	if again := read(); again.ring.KeyID() != first.ring.KeyID() {
		t.Error("a key on standby seals")
	}
	add(KeyFirst)
	last := read()
	if last.ring.KeyID() == first.ring.KeyID() {
		t.Error("the new key does not seal")
	}
	if !bytes.Equal(last.own, first.own) {
		t.Error("webhook secrets changed with the key of credentials")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v, %v", info.Mode(), err)
	}
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	if err := NewKey(good, KeyFirst); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	own, credential := lines[1], lines[0]
	if strings.HasPrefix(credential, ownKeyID) {
		own, credential = credential, own
	}
	for name, content := range map[string]string{
		"empty": "", "no own key": credential, "own key alone": own, "own key twice": credential + own + own, "short": credential + "server:YWJj\n",
	} {
		if _, err := parseKeys([]byte(content)); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if name == "empty" {
			continue
		}
		bad := filepath.Join(dir, "bad")
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := NewKey(bad, KeyFirst); err == nil {
			t.Errorf("%s: a key was added to it", name)
		}
	}
}

func TestSharedServersNeedTheSameSecrets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason, says string
		cfg                Config
	}{
		{"no keys", "each would create its own", "--key-file", Config{Listen: "127.0.0.1:0"}},
		{"loopback", "plain text needs no CA", "", Config{Listen: "127.0.0.1:0", KeyFile: "k"}},
		{"own CA", "each would create its own", "--tls-ca-cert-file", Config{Listen: ":0", KeyFile: "k"}},
		{"named on loopback", "a name asks for TLS", "--tls-ca-cert-file", Config{Listen: "127.0.0.1:0", TLSHosts: []string{"x"}, KeyFile: "k"}},
		{"given CA", "they agree", "", Config{Listen: ":0", KeyFile: "k", TLSCACertFile: "c", TLSCAKeyFile: "k"}},
		{"given certificate", "they agree", "", Config{Listen: ":0", KeyFile: "k", TLSCertFile: "c", TLSKeyFile: "k"}},
		{"plain text", "a proxy terminates TLS", "", Config{Listen: ":0", KeyFile: "k", Plaintext: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.cfg.checkShared()
			if (tt.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%s: got %v", tt.reason, err)
			}
		})
	}
}
