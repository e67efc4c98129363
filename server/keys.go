package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kedge-dev/kedge/server/internal/seal"
	"github.com/kedge-dev/kedge/server/internal/store"
)

// ownKeyID is the name of the line in a key file that is not a key for credentials: webhook secrets are derived
// from it, so it must not change while webhooks exist.
const ownKeyID = "server"

// keys are the secrets of the server, equal on all replicas.
type keys struct {
	own  []byte
	ring *seal.Ring
}

// checkKeys refuses to create new keys for a database that is in use: webhook secrets would change, and no
// credential could be decrypted.
func checkKeys(ctx context.Context, cfg Config, st store.Store) error {
	path := filepath.Join(cfg.DataDir, "keys")
	if cfg.KeyFile != "" {
		return nil
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	used := 0
	err := st.View(ctx, func(tx store.Tx) (err error) {
		used, err = tx.Tokens().CountAPITokens(ctx, "")
		return err
	})
	if err != nil || used == 0 {
		return err
	}
	return fmt.Errorf("the key file %s is missing, and the database is in use: restore the file from your backup. "+
		"If it is lost, create a new one with kedge-server new-key --key-file %s, and then set every webhook and every credential again", path, path)
}

// loadKeys reads the key file. If there is none, a server with its own database creates one.
func loadKeys(cfg Config) (keys, error) {
	path := cfg.KeyFile
	if path == "" {
		path = filepath.Join(cfg.DataDir, "keys")
		if err := NewKey(path, KeyIfNone); err != nil {
			return keys{}, err
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return keys{}, fmt.Errorf("reading the key file: %w", err)
	}
	k, err := parseKeys(text)
	if err != nil {
		return keys{}, fmt.Errorf("reading the key file %s: %w", path, err)
	}
	return k, nil
}

func parseKeys(text []byte) (keys, error) {
	var k keys
	var rest bytes.Buffer
	for line := range strings.Lines(string(text)) {
		id, encoded, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || id != ownKeyID {
			rest.WriteString(line)
			continue
		}
		own, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		if err != nil || len(own) < 32 || k.own != nil {
			return keys{}, fmt.Errorf("the line %q is not one key of 32 bytes in base64", ownKeyID)
		}
		k.own = own
	}
	if k.own == nil {
		return keys{}, fmt.Errorf("it has no line %q: create the file with kedge-server new-key", ownKeyID)
	}
	var err error
	k.ring, err = seal.Parse(rest.Bytes())
	return k, err
}

// KeyPlace is the position of a key from NewKey.
type KeyPlace int

// The first key encrypts. A key on standby only decrypts, so that all replicas can have it before the first of
// them encrypts with it.
const (
	KeyFirst KeyPlace = iota
	KeyStandby
	KeyIfNone // does nothing if there is a key file
)

// NewKey adds a key for credentials to a key file, which is created if there is none.
func NewKey(path string, place KeyPlace) error {
	text, err := os.ReadFile(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return fmt.Errorf("reading the key file: %w", err)
	}
	if !fresh && place == KeyIfNone {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimRight(line, "\n")+"\n")
	}
	if fresh {
		own, err := seal.NewKey(ownKeyID)
		if err != nil {
			return err
		}
		lines = []string{own}
	} else if _, err := parseKeys(text); err != nil {
		return fmt.Errorf("reading the key file %s: %w", path, err)
	}
	key, err := seal.NewKey("k" + time.Now().UTC().Format("20060102") + "-" + strings.ToLower(rand.Text()[:8]))
	if err != nil {
		return err
	}
	if place == KeyStandby && !fresh {
		lines = append(lines, key)
	} else {
		lines = append([]string{key}, lines...)
	}
	return writeWhole(path, []byte(strings.Join(lines, "")))
}

// writeWhole replaces a file atomically. Other users cannot read it.
func writeWhole(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
