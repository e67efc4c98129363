package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// verifySums compares every vendored file with SHA256SUMS. A file that is not listed is an error
// as well: it would be code that nobody vouched for.
func verifySums(vendor string) error {
	want, err := readSums(filepath.Join(vendor, "SHA256SUMS"))
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(vendor, "*", "*"))
	if err != nil {
		return fmt.Errorf("listing %q: %w", vendor, err)
	}
	for _, path := range found {
		name, err := filepath.Rel(vendor, path)
		if err != nil {
			return fmt.Errorf("naming %q: %w", path, err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading a vendored file: %w", err)
		}
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != want[filepath.ToSlash(name)] {
			return fmt.Errorf("verifying %q: sha256 %s is not what SHA256SUMS says", path, got)
		}
		delete(want, filepath.ToSlash(name))
	}
	for name := range want {
		return fmt.Errorf("verifying %q: listed in SHA256SUMS and missing", name)
	}
	return nil
}

// readSums reads the output of sha256sum: name to hex digest.
func readSums(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the checksums: %w", err)
	}
	defer file.Close()
	sums := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return nil, fmt.Errorf("reading %q: line %q is not a checksum and a name", path, lines.Text())
		}
		sums[name] = sum
	}
	return sums, lines.Err()
}

// replaceDir makes dir hold exactly files. It writes before it removes, so that a failure half
// way leaves the old page working.
func replaceDir(dir string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making a folder for %q: %w", name, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return fmt.Errorf("writing %q: %w", name, err)
		}
	}
	old, err := filepath.Glob(filepath.Join(dir, "assets", "*"))
	if err != nil {
		return fmt.Errorf("listing %q: %w", dir, err)
	}
	for _, path := range old {
		if _, keep := files["assets/"+filepath.Base(path)]; keep {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("removing an old asset: %w", err)
		}
	}
	return nil
}
