package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempts are actions that a confined process must not be able to do. Each gets an argument from the test and
// returns nil if it succeeded.
var attempts = map[string]func(argument string) error{
	"tcp":          func(address string) error { return dial("tcp", address) },
	"udp":          func(address string) error { return datagram(address) },
	"unix-socket":  func(path string) error { return dial("unix", path) },
	"abstract":     func(name string) error { return dial("unix", "@"+name) },
	"listen":       func(string) error { return listen() },
	"netlink":      func(string) error { return closed(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)) },
	"dns":          func(string) error { _, err := net.LookupHost("localhost"); return err },
	"read-file":    func(path string) error { _, err := os.ReadFile(path); return err },
	"stat":         func(path string) error { _, err := os.Stat(path); return err },
	"list":         func(path string) error { return list(path) },
	"proc":         func(string) error { _, err := os.ReadFile("/proc/self/environ"); return err },
	"write":        func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
	"mkdir":        func(path string) error { return os.Mkdir(path, 0o700) },
	"chmod":        func(path string) error { return os.Chmod(path, 0o777) },
	"unlink":       func(path string) error { return os.Remove(path) },
	"chdir":        func(string) error { return os.Chdir("/proc") },
	"exec":         func(string) error { return exec.Command("/bin/true").Run() },
	"exec-self":    func(string) error { return unix.Exec("/proc/self/exe", []string{"x"}, nil) },
	"fork":         func(string) error { return fork() },
	"memfd":        func(string) error { return closed(unix.MemfdCreate("x", 0)) },
	"run-memory":   func(string) error { return runMemory() },
	"kill":         func(pid string) error { return signal(pid, unix.SIGKILL) },
	"signal-group": func(string) error { return unix.Kill(0, unix.SIGTERM) },
	"ptrace":       func(pid string) error { return withPID(pid, unix.PtraceAttach) },
	"read-memory":  func(pid string) error { return withPID(pid, readMemory) },
	"pidfd":        func(pid string) error { return withPID(pid, func(p int) error { return closed(unix.PidfdOpen(p, 0)) }) },
	"inherited":    func(string) error { return inherited() },
	"raise-limit":  func(string) error { return raiseLimit() },
	"mount":        func(string) error { return unix.Mount("none", "/", "tmpfs", 0, "") },
	"unshare":      func(string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"bpf":          func(string) error { return raw(unix.SYS_BPF, 0, 0, 0) },
	"keyctl":       func(string) error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err },
	"io-uring": func(string) error {
		var p [120]byte
		return raw(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p[0])), 0)
	},
	"userfaultfd":   func(string) error { return raw(unix.SYS_USERFAULTFD, 0, 0, 0) },
	"setuid":        func(string) error { return unix.Setuid(0) },
	"hostname":      func(string) error { return unix.Sethostname([]byte("x")) },
	"shared-memory": func(string) error { return raw(unix.SYS_SHMGET, 0, 4096, 0o1600) },
}

// inherited searches for an open file.
func inherited() error {
	for fd := 3; fd < 1024; fd++ {
		if n, err := unix.Pread(fd, make([]byte, 1), 0); err == nil && n > 0 {
			return nil
		}
	}
	return errors.New("there is none")
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// datagram sends without waiting for a response; the test checks whether it arrived.
func datagram(address string) error {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte("hello"))
	return errors.Join(err, conn.Close())
}

func listen() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		_ = l.Close()
	}
	return err
}

func closed(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func list(path string) error {
	names, err := os.ReadDir(path)
	if err == nil && len(names) == 0 {
		return errors.New("it is empty")
	}
	return err
}

// fork creates a process that ends immediately.
func fork() error {
	pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func runMemory() error {
	_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	return err
}

func signal(pid string, s syscall.Signal) error {
	return withPID(pid, func(p int) error { return unix.Kill(p, s) })
}

func withPID(text string, f func(int) error) error {
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 2 {
		return fmt.Errorf("%q is not a process", text)
	}
	return f(pid)
}

func readMemory(pid int) error {
	var buf [8]byte
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&buf[0])), Len: 8}}, 0)
	return err
}

func raiseLimit() error {
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

func raw(nr, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall(nr, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
