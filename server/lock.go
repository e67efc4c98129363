package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir excludes a second server from a data directory: it would treat the connections of the first one as
// lost, and neither would be notified of the changes of the other. The lock ends with the process.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another kedge-server uses %s: stop it first, or set another --data-dir", dir), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), f.Close())
	}
	return func() {
		// A child process that is being started has a copy of the file, with the lock, for a moment.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}, nil
}
