package sandbox

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var errOff = errors.New("it was switched off")

// Enter puts up every wall that can be had around the calling process, for good, and reports on them. It
// is to be called before anything else goes on, and before any input is read.
func Enter(o Options) Status {
	var s Status
	closeInherited()
	// Whatever happens to this process, the system should choose it before its parent when memory is
	// short. Where it cannot be said, the limits still hold.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	for _, wall := range []struct {
		mechanism Mechanism
		putUp     func(Options) error
	}{
		{Limits, limit}, {Namespaces, checkNamespaces}, {Root, emptyRoot}, {Landlock, restrictByLandlock}, {Seccomp, filterSyscalls},
	} {
		err := errOff
		if o.wants(wall.mechanism) {
			err = wall.putUp(o)
		}
		s.note(wall.mechanism, err)
		if wall.mechanism == Root { // the last one that needs privileges
			dropPrivileges()
		}
	}
	s.Open = reachable()
	return s
}

// closeInherited closes every file that a careless ancestor has left open, and those of the Go runtime that
// it no longer needs. What remains are the standard three and what the runtime waits with.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // nothing can be said about them
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && target != "anon_inode:[eventpoll]" && target != "anon_inode:[eventfd]" {
			_ = unix.Close(fd)
		}
	}
}

// checkNamespaces reports what was done to this process when it was started.
func checkNamespaces(o Options) error {
	if i := o.Isolation; !i.Network || !i.Process {
		return errors.New(cmp.Or(i.Problem, "the process was started without"))
	}
	return nil
}

// dropPrivileges gives up the capabilities that this process was started with, and any way to get some
// by running a program. Without the latter neither Landlock nor seccomp are to be had for ordinary users:
// where it fails, as it does in a program that was built with cgo, they do so too and say why.
func dropPrivileges() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0) //nolint:gosec // system calls take addresses
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
}

// reachable tries what must not work.
func reachable() []string {
	var open []string
	if fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		names, err := unix.ReadDirent(fd, make([]byte, 4096))
		_ = unix.Close(fd)
		if err == nil && names > emptyFolder {
			open = append(open, "files")
		}
	}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
		// An address for documentation. Nothing is sent: connecting a datagram socket only looks for a way.
		err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
		_ = unix.Close(fd)
		if err == nil {
			open = append(open, "network")
		}
	}
	return open
}

// emptyFolder is the size of a listing of nothing but . and ..
const emptyFolder = 2 * 24
