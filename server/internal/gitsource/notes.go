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
	notesFile = "kedge-mirror.json"
	// touchEvery is how exactly it is known when a mirror was last used.
	touchEvery = time.Hour
)

// notes are in a mirror's folder and say whose it is, which its name does not tell. The time of the
// file is about when the mirror was last used.
type notes struct {
	Owner string `json:"owner"`
	URL   string `json:"url"`
	// Parent is the repository that this one is a submodule of. It is kept as long as that one is.
	Parent string `json:"parent,omitempty"`
}

// readNotes returns the notes of the mirror in dir and when it was last used. What has no notes
// belongs to nobody.
func readNotes(dir string) (notes, time.Time, error) {
	var n notes
	info, err := os.Stat(dir)
	if err != nil {
		return n, time.Time{}, fmt.Errorf("reading a mirror's notes: %w", err)
	}
	path := filepath.Join(dir, notesFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && json.Unmarshal(data, &n) != nil) {
		return notes{}, info.ModTime(), nil
	}
	if err != nil {
		return n, time.Time{}, fmt.Errorf("reading a mirror's notes: %w", err)
	}
	if info, err = os.Stat(path); err != nil {
		return n, time.Time{}, fmt.Errorf("reading a mirror's notes: %w", err)
	}
	return n, info.ModTime(), nil
}

func (n notes) write(dir string) error {
	data, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("writing a mirror's notes: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, notesFile), data, 0o600)
}

// touchNotes sets the time of last use. A mirror that is not there yet has none.
func touchNotes(dir string, now time.Time) error {
	err := os.Chtimes(filepath.Join(dir, notesFile), now, now)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
