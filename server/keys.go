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

// ownKeyID is the line of a key file that is no key for credentials: secrets of webhooks are derived from
// it, so it stays for as long as the hooks do.
const ownKeyID = "server"

// keys are the server's secrets, the same on all replicas.
type keys struct {
	own  []byte
	ring *seal.Ring
}

// checkKeys refuses to make new keys for a database that is in use: webhook secrets would change, and no
// credential could be opened.
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
	return fmt.Errorf("the keys %s are missing, and the database is in use: put the file back from where you keep it. "+
		"If it is lost, kedge-server new-key --key-file %s makes new ones: set up every webhook and every credential anew then", path, path)
}

// loadKeys reads the key file. Without one, a server that has its database to itself makes its own.
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
		return keys{}, fmt.Errorf("it has no line %q: make it with kedge-server new-key", ownKeyID)
	}
	var err error
	k.ring, err = seal.Parse(rest.Bytes())
	return k, err
}

// KeyPlace says where NewKey puts a key.
type KeyPlace int

// A key that stands first seals. One on standby only opens, so that all replicas can know it before the
// first of them seals with it.
const (
	KeyFirst KeyPlace = iota
	KeyStandby
	KeyIfNone // nothing is done when there is a key file
)

// NewKey adds a key for credentials to a key file, which is made if there is none.
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

// writeWhole leaves the old file or the new one, whatever happens, readable by nobody else.
func writeWhole(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after the rename
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
