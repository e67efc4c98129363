package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/deploy/crds"
	"github.com/kedge-dev/kedge/server"
)

func parseMigrate(args []string, s streams) (command, error) {
	db, err := newFlags("migrate", "updates the schema of a database. With PostgreSQL, connect as the role that owns the tables", s).read(args)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return server.Migrate(ctx, db) }, nil
}

func parseBackup(args []string, s streams) (command, error) {
	f := newFlags("backup", "writes a consistent copy of the database while servers use it. With PostgreSQL, connect as the role of the server. "+
		"Back up the key file too: the copy contains credentials in encrypted form", s)
	out := f.String("out", "", "file to write, or - for standard output")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	switch *out {
	case "":
		return nil, errors.New("the output file is missing: use --out")
	case "-":
		return func(ctx context.Context) error { return server.Backup(ctx, db, s.out) }, nil
	}
	return func(ctx context.Context) error {
		return writeFile(*out, func(w io.Writer) error { return server.Backup(ctx, db, w) })
	}, nil
}

func parseRestore(args []string, s streams) (command, error) {
	f := newFlags("restore", "restores a backup into an empty SQLite or PostgreSQL database. With PostgreSQL, connect as the role that owns the tables", s)
	in := f.String("in", "", "file to read, or - for standard input")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	switch *in {
	case "":
		return nil, errors.New("the input file is missing: use --in")
	case "-":
		return func(ctx context.Context) error { return server.Restore(ctx, db, s.in) }, nil
	}
	return func(ctx context.Context) error {
		file, err := os.Open(*in)
		if err != nil {
			return fmt.Errorf("opening the backup: %w", err)
		}
		return errors.Join(server.Restore(ctx, db, file), file.Close())
	}, nil
}

func parseNewKey(args []string, s streams) (command, error) {
	f := newFlags("new-key", "creates a key file, or adds a key to one. The first key encrypts credentials, and all keys decrypt them; "+
		"when a server starts, it encrypts all credentials with the first key", s)
	path := f.String("key-file", "", "file to create or to add to (default: the key file in the data directory)")
	standby := f.Bool("standby", false, "add the key as the last one, so that all servers have it before one of them encrypts with it")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	if *path == "" {
		*path = filepath.Join(db.DataDir, "keys")
	}
	position := server.KeyFirst
	if *standby {
		position = server.KeyStandby
	}
	return func(context.Context) error { return server.NewKey(*path, position) }, nil
}

// writeFile writes a file atomically. Other users cannot read it.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // does nothing after the rename
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

// parseDefinitions prints the definitions of the custom resources. It has no flags.
func parseDefinitions(args []string, s streams) (command, error) {
	if len(args) > 0 {
		fmt.Fprint(s.out, "kedge-server crds prints the definitions of the custom resources, for kubectl apply --server-side -f -.\n")
		return nil, pflag.ErrHelp
	}
	return func(context.Context) error {
		manifest, err := crds.Manifest()
		if err != nil {
			return err
		}
		_, err = io.WriteString(s.out, manifest)
		return err
	}, nil
}
