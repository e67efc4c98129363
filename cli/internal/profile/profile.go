// Package profile is the file in which the CLI remembers servers and tokens. It holds secrets: it
// is written for its owner alone, whole or not at all, and its content is never logged.
package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// File is what the CLI remembers.
type File struct {
	Current  string    `json:"currentContext"`
	Contexts []Context `json:"contexts"`
}

// Context is one way into one server.
type Context struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	Token  string `json:"token"`
	CA     string `json:"ca,omitempty"` // PEM
	Tenant string `json:"tenant,omitempty"`
}

// Path is where the file is, by the environment of the user.
func Path(env func(string) string) (string, error) {
	if path := env("KEDGE_CONFIG"); path != "" {
		return path, nil
	}
	if dir := env("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "kedge", "config.yaml"), nil
	}
	if home := env("HOME"); home != "" {
		return filepath.Join(home, ".config", "kedge", "config.yaml"), nil
	}
	return "", errors.New("no home folder: set KEDGE_CONFIG to a file")
}

// Load reads the file; one that does not exist is empty.
func Load(path string) (File, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("reading the login: %w", err)
	}
	var f File
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return File{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return f, nil
}

// Save replaces the file.
func (f File) Save(path string) error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("encoding the login: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".config-*") // mode 0600 from the start
	if err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already when all went well
	_, err = tmp.Write(text)
	if err := errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	return nil
}

// Find returns the context of that name, or the current one when name is empty.
func (f File) Find(name string) (Context, bool) {
	if name == "" {
		name = f.Current
	}
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// Set adds or replaces a context and makes it the current one.
func (f *File) Set(c Context) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(o Context) bool { return o.Name == c.Name })
	f.Contexts = append(f.Contexts, c)
	f.Current = c.Name
}

// Remove deletes a context and reports whether there was one. The current context is then none, if it was that one.
func (f *File) Remove(name string) bool {
	before := len(f.Contexts)
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
	return len(f.Contexts) < before
}
