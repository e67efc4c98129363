package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kedge-dev/kedge/server"
)

func parseMigrate(args []string, s streams) (command, error) {
	db, err := newFlags("migrate", "brings the schema of a database up to date. With PostgreSQL it connects as the role that owns the tables", s).read(args)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return server.Migrate(ctx, db) }, nil
}

func parseBackup(args []string, s streams) (command, error) {
	f := newFlags("backup", "writes a consistent copy of the database while servers use it. It connects as the server does. "+
		"Keep the key file too: credentials are sealed in the copy", s)
	out := f.String("out", "", "file to write, - for standard output")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	switch *out {
	case "":
		return nil, errors.New("no file was given: use --out")
	case "-":
		return func(ctx context.Context) error { return server.Backup(ctx, db, s.out) }, nil
	}
	return func(ctx context.Context) error {
		return writeFile(*out, func(w io.Writer) error { return server.Backup(ctx, db, w) })
	}, nil
}

func parseRestore(args []string, s streams) (command, error) {
	f := newFlags("restore", "puts a backup into an empty database, of either kind. With PostgreSQL it connects as the role that owns the tables", s)
	in := f.String("in", "", "file to read, - for standard input")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	switch *in {
	case "":
		return nil, errors.New("no file was given: use --in")
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
	f := newFlags("new-key", "makes a key file, or adds a key to one. The first key seals credentials, all of them open; "+
		"servers seal everything anew with it when they start", s)
	path := f.String("key-file", "", "file to make or add to (default: that of the data directory)")
	standby := f.Bool("standby", false, "add the key last, so that all servers can know it before one seals with it")
	db, err := f.read(args)
	if err != nil {
		return nil, err
	}
	if *path == "" {
		*path = filepath.Join(db.DataDir, "keys")
	}
	place := server.KeyFirst
	if *standby {
		place = server.KeyStandby
	}
	return func(context.Context) error { return server.NewKey(*path, place) }, nil
}

// writeFile leaves a whole file or none, readable by nobody else.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after the rename
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
