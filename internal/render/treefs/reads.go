package treefs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kedge-dev/kedge/internal/filetree"
)

// note is the kind of access to a path.
type note int

const (
	noteNode  note = 1 << iota // the node: a file with its content, a link with its target, a folder, or nothing
	noteNames                  // the names in a folder and their kinds
)

// note records an access to a path.
func (f *FS) note(name string, n note) {
	if _, known := f.notes[name]; !known {
		f.noted += len(name)
	}
	f.notes[name] |= n
}

// The prefixes of reads.
const (
	readNode  = "f" // as noteNode
	readNames = "l" // as noteNames
	readTree  = "t" // everything below a folder
)

// Reads returns the accesses so far, sorted: "f path" for the node at a path (a file and its content, a link
// and its target, a folder, or nothing), "l path" for the names in a folder, "t path" for everything below one.
// Accesses that others imply are omitted.
func (f *FS) Reads() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	whole := map[string]bool{}
	for folder, n := range f.notes {
		if n&noteNames != 0 {
			f.isWhole(folder, whole)
		}
	}
	var reads []string
	for name, n := range f.notes {
		switch {
		case name != "." && insideWhole(path.Dir(name), whole):
		case whole[name]:
			reads = append(reads, readTree+" "+name)
		case n&noteNames != 0:
			reads = append(reads, readNames+" "+name)
		case name != ".": // which is always a folder
			reads = append(reads, readNode+" "+name)
		}
	}
	slices.Sort(reads)
	return reads
}

// isWhole reports whether a folder was read completely, and records it in whole.
func (f *FS) isWhole(folder string, whole map[string]bool) bool {
	if answer, known := whole[folder]; known {
		return answer
	}
	answer := f.notes[folder]&noteNames != 0
	for _, e := range f.folders.listed[folder] {
		if !answer {
			break
		}
		name := path.Join(folder, e.Name)
		if e.Mode == filetree.Dir {
			answer = f.isWhole(name, whole)
		} else {
			answer = f.notes[name]&noteNode != 0
		}
	}
	whole[folder] = answer
	return answer
}

func insideWhole(folder string, whole map[string]bool) bool {
	for ; folder != "."; folder = path.Dir(folder) {
		if whole[folder] {
			return true
		}
	}
	return whole["."]
}

// fingerprintVersion must change when the meaning of reads changes.
const fingerprintVersion = "reads/1"

// Fingerprint returns a hash of the content that reads, a result of Reads for a render, would find in tree. Two
// trees have the same fingerprint if and only if no accessed content differs. It lists folders and reads no
// file.
func Fingerprint(ctx context.Context, tree filetree.Tree, reads []string) (string, error) {
	in := folders{tree: tree, listed: map[string][]filetree.Entry{}}
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %d\n", fingerprintVersion, len(reads))
	for _, read := range reads {
		state, err := in.state(ctx, read)
		if err != nil {
			return "", fmt.Errorf("checking whether %q has changed: %w", read, err)
		}
		fmt.Fprintf(hash, "%q %q\n", read, state)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

var errRead = errors.New("not something that a render can have read")

// state describes what a read finds in the tree.
func (f *folders) state(ctx context.Context, read string) (string, error) {
	word, name, ok := strings.Cut(read, " ")
	if !ok || name == "" || name != path.Clean(name) || strings.ContainsRune(name, 0) {
		return "", errRead
	}
	if _, err := split(name); err != nil {
		return "", errRead
	}
	entry, found, err := f.lookup(ctx, name)
	switch {
	case err != nil:
		return "", err
	case !found && (entry.Mode == filetree.Symlink || entry.Mode == filetree.Submodule):
		// There was none at the time of the read: now it may lead to something.
		return fmt.Sprintf("behind %q %d %s", entry.Name, entry.Mode, entry.ID), nil
	case !found:
		return "nothing", nil
	case entry.Mode != filetree.Dir:
		return fmt.Sprintf("%d %s", entry.Mode, entry.ID), nil
	}
	switch word {
	case readNode:
		return "folder", nil
	case readNames:
		return f.nameState(ctx, name)
	case readTree:
		id, err := f.tree.ID(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return "nothing", nil // the root of an empty tree
		}
		return "below " + id, err
	}
	return "", errRead
}

func (f *folders) nameState(ctx context.Context, folder string) (string, error) {
	entries, err := f.list(ctx, folder)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%q %d\n", e.Name, e.Mode)
	}
	return text.String(), nil
}
