//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed lists the system calls of a Go program without cgo that computes and uses open pipes. All others
// return EPERM, including calls that open, connect, run, or search for anything.
var allowed = append([]uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_FCNTL, unix.SYS_FSTAT,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_PPOLL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRUSAGE, unix.SYS_GETRANDOM, unix.SYS_UNAME,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, allowedHere...)

const (
	// maskThread are the flags of a clone that creates only a thread of this process.
	maskThread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM |
		unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID | unix.CLONE_CHILD_SETTID
	// x32 system calls have this bit in their number and the same architecture as others.
	x32 = 0x40000000

	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16 // eight bytes each, the lower half first
)

// filterSyscalls makes the kernel refuse, for all threads, every system call that a renderer does not need.
func filterSyscalls(Options) error {
	raw, err := bpf.Assemble(program(uint32(os.Getpid())))
	if err != nil {
		return fmt.Errorf("assembling the filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))) //nolint:gosec // system calls take addresses
	runtime.KeepAlive(filter)
	if errno != 0 {
		return fmt.Errorf("this kernel refuses the filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("thread %d does not accept the filter", thread)
	}
	return nil
}

// program returns the filter for the process self.
func program(self uint32) []bpf.Instruction {
	deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	out := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		deny,
	}
	for _, nr := range allowed {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(nr), SkipTrue: 1}, allow)
	}
	// Go maps memory to read and write it. Exploits need executable memory.
	noExec := []bpf.Instruction{argument(2), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.PROT_EXEC, SkipFalse: 1}, deny, allow}
	out = append(out, when(unix.SYS_MMAP, noExec)...)
	out = append(out, when(unix.SYS_MPROTECT, noExec)...)
	out = append(out, when(unix.SYS_CLONE, []bpf.Instruction{
		argument(0),
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipTrue: 1}, deny,
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: ^uint32(maskThread), SkipFalse: 1}, deny, allow,
	})...)
	// Threads interrupt each other; no other process may be signaled.
	out = append(out, when(unix.SYS_TGKILL, []bpf.Instruction{argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: self, SkipFalse: 1}, allow, deny})...)
	// Naming memory, for debugging. All other options are refused.
	out = append(out, when(unix.SYS_PRCTL, []bpf.Instruction{argument(0), bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PR_SET_VMA, SkipFalse: 1}, allow, deny})...)
	return append(out, deny)
}

// when applies instructions, which always end in a result, to one system call number.
func when(nr uint32, actions []bpf.Instruction) []bpf.Instruction {
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(actions))}}, actions...)
}

func argument(n uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offsetArgs + 8*n, Size: 4} }
