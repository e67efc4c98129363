package gitsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	metadataFile = "kedge-mirror.json"
	// touchInterval is the precision of the time of last use.
	touchInterval = time.Hour
)

// metadata is a file in the folder of a mirror. It contains the owner and the URL. The modification time of the
// file is about the time of last use.
type metadata struct {
	Owner string `json:"owner"`
	URL   string `json:"url"`
	// Parent is the repository that this one is a submodule of. A submodule is kept as long as its parent.
	Parent string `json:"parent,omitempty"`
}

// readMetadata returns the metadata of the mirror in dir and the time of its last use. A mirror without metadata
// has no owner.
func readMetadata(dir string) (metadata, time.Time, error) {
	var n metadata
	info, err := os.Stat(dir)
	if err != nil {
		return n, time.Time{}, fmt.Errorf("reading the metadata of a mirror: %w", err)
	}
	path := filepath.Join(dir, metadataFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && json.Unmarshal(data, &n) != nil) {
		return metadata{}, info.ModTime(), nil
	}
	if err != nil {
		return n, time.Time{}, fmt.Errorf("reading the metadata of a mirror: %w", err)
	}
	if info, err = os.Stat(path); err != nil {
		return n, time.Time{}, fmt.Errorf("reading the metadata of a mirror: %w", err)
	}
	return n, info.ModTime(), nil
}

func (n metadata) write(dir string) error {
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("writing the metadata of a mirror: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, metadataFile), data, 0o600)
}

// touchMetadata sets the time of last use. It does nothing for a mirror that does not exist yet.
func touchMetadata(dir string, now time.Time) error {
	err := os.Chtimes(filepath.Join(dir, metadataFile), now, now)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
