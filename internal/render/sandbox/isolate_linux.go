package sandbox

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is who a process is in its own user namespace. Not root, or starting the program would give
// it every capability there.
const nobody = 65534

// Isolations returns what to try when a process is started, the best first. Whether the kernel and the
// container around us permit it shows only then.
func Isolations() []Isolation {
	return []Isolation{
		{User: true, Network: true, Process: true, Mount: true},
		{User: true, Network: true},
		{Network: true, Process: true, Mount: true}, // root, where nobody may have user namespaces
		{},
	}
}

// Isolate returns how to start a process so that it is isolated: in a process group of its own and, as
// far as i says, in namespaces of its own. It is killed when the thread that started it ends.
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
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to change its root; Enter gives it up
	}
	return attr
}
