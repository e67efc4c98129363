package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDatabaseURL(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://kedge:hunter2@db/kedge\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, reason, flag, file, env, want, err string
	}{
		{name: "nothing", reason: "a file in the data directory"},
		{name: "flag", reason: "a URL without a password is not secret", flag: "postgres://kedge@db/kedge", env: "postgres://other/", want: "postgres://kedge@db/kedge"},
		{name: "path", reason: "a path is not a URL", flag: "/var/lib/kedge.db", want: "/var/lib/kedge.db"},
		{name: "password", reason: "every user can read arguments", flag: "postgres://kedge:hunter2@db/kedge", err: "--database-url-file"},
		{name: "file", reason: "a file is readable by its owner only", file: file, env: "postgres://other/", want: "postgres://kedge:hunter2@db/kedge"},
		{name: "environment", reason: "other users cannot read the environment", env: "postgres://kedge:hunter2@db/kedge", want: "postgres://kedge:hunter2@db/kedge"},
		{name: "both", reason: "the settings contradict each other", flag: "sqlite", file: file, err: "exclude each other"},
		{name: "no file", reason: "the file does not exist", file: file + ".none", err: "--database-url-file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := databaseURL(tt.flag, tt.file, tt.env)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "hunter2") {
					t.Fatalf("%s: got %v", tt.reason, err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("%s: got %q, %v", tt.reason, got, err)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, err string }{
		{args: "--listen 127.0.0.1:0"},
		{args: "serve --listen 127.0.0.1:0"},
		{args: "migrate --database x.db"},
		{args: "backup --out -"},
		{args: "backup", err: "--out"},
		{args: "restore", err: "--in"},
		{args: "restore --in x extra", err: "unexpected argument"},
		{args: "new-key --standby"},
		{args: "dance", err: "unknown command"},
		{args: "--dance", err: "dance"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			run, err := parse(strings.Fields(tt.args), streams{&out, &out, &out})
			if tt.err == "" && (err != nil || run == nil) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v", err)
			}
		})
	}
}
