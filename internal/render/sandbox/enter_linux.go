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

// Enter permanently applies every available mechanism to the calling process and reports the result. Call it
// first, before any input is read.
func Enter(o Options) Status {
	var s Status
	closeInherited()
	// When memory is short, the system should kill this process before its parent. If this setting fails, the
	// limits still apply.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	for _, step := range []struct {
		mechanism Mechanism
		apply     func(Options) error
	}{
		{Limits, limit}, {Namespaces, checkNamespaces}, {Root, emptyRoot}, {Landlock, restrictByLandlock}, {Seccomp, filterSyscalls},
	} {
		err := errOff
		if o.wants(step.mechanism) {
			err = step.apply(o)
		}
		s.note(step.mechanism, err)
		if step.mechanism == Root { // the last one that needs privileges
			dropPrivileges()
		}
	}
	s.Open = reachable()
	return s
}

// closeInherited closes every file that an ancestor left open, and those of the Go runtime that it no longer
// needs. The standard three and the poller of the runtime remain.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return // the open files cannot be listed
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

// checkNamespaces reports the namespaces that this process was started in.
func checkNamespaces(o Options) error {
	if i := o.Isolation; !i.Network || !i.Process {
		return errors.New(cmp.Or(i.Problem, "the process was started without"))
	}
	return nil
}

// dropPrivileges drops the capabilities of this process, and the ability to gain some by running a program.
// Landlock and seccomp require the latter for ordinary users: if it fails, as in a program built with cgo, they
// fail too and report why.
func dropPrivileges() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0)
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0) //nolint:gosec // system calls take addresses
	_, _, _ = syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
}

// reachable tries actions that must fail.
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
		// An address for documentation. Nothing is sent: connecting a datagram socket only looks up a route.
		err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
		_ = unix.Close(fd)
		if err == nil {
			open = append(open, "network")
		}
	}
	return open
}

// emptyFolder is the size of a listing with only . and ..
const emptyFolder = 2 * 24
