package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// emptyRoot makes an empty read-only folder the root of this process and of all its threads, and unmounts
// everything else.
func emptyRoot(o Options) error {
	if !o.Isolation.Mount {
		return errors.New("it needs a mount namespace")
	}
	// These changes must not reach the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// Any folder can be the mount point of the new root, and this one exists: the program was started from it.
	const place = "/proc"
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("none", place, "tmpfs", flags, "size=4k,nr_inodes=1,mode=555"); err != nil {
		return fmt.Errorf("mounting an empty folder: %w", err)
	}
	if err := unix.Chdir(place); err != nil {
		return fmt.Errorf("entering the empty folder: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil { // mounts the old root on top of the new one
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the old root: %w", err)
	}
	return unix.Chdir("/")
}
