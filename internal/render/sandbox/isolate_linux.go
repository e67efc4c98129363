package sandbox

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user of a process in its own user namespace. It is not root, because then starting the program
// would give it every capability there.
const nobody = 65534

// Isolations returns the isolations to try, the best first. Whether the kernel and the container runtime permit
// one is only visible at the start of a process.
func Isolations() []Isolation {
	return []Isolation{
		{User: true, Network: true, Process: true, Mount: true},
		{User: true, Network: true},
		{Network: true, Process: true, Mount: true}, // for root, on systems without user namespaces
		{},
	}
}

// Isolate returns the attributes that start a process in its own process group and in the namespaces of i. The
// process is killed when the thread that started it ends.
func Isolate(i Isolation) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	for _, part := range []struct {
		wanted bool
		flags  uintptr
	}{
		{i.User, unix.CLONE_NEWUSER},
		{i.Network, unix.CLONE_NEWNET},
		{i.Process, unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS},
		{i.Mount, unix.CLONE_NEWNS},
	} {
		if part.wanted {
			attr.Cloneflags |= part.flags
		}
	}
	if i.User {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getgid(), Size: 1}}
	}
	if i.Mount {
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to change its root; Enter drops it
	}
	return attr
}
