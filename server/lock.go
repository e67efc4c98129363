package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir keeps a second server away from a data directory: it would take the connections of the
// first one for lost, and neither would hear of the other's changes. The lock goes with the process,
// however that ends.
func lockDir(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("another kedge-server uses %s: stop it first, or choose another --data-dir", dir), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking the data directory: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
