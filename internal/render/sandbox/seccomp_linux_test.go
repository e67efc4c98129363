//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// An interpreter runs the filter for each system call: an error in a jump could allow a call that no test with
// a real process tries.
func TestFilter(t *testing.T) {
	t.Parallel()
	const self = 4711
	vm, err := bpf.NewVM(program(self))
	if err != nil {
		t.Fatal(err)
	}
	const allow, deny, kill = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM), unix.SECCOMP_RET_KILL_PROCESS
	thread := uint32(unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD)
	tests := []struct {
		reason string
		arch   uint32
		nr     uint32
		args   [3]uint32
		want   int
	}{
		{"reading a pipe", arch, unix.SYS_READ, [3]uint32{}, allow},
		{"a thread", arch, unix.SYS_CLONE, [3]uint32{thread}, allow},
		{"a process", arch, unix.SYS_CLONE, [3]uint32{unix.CLONE_VM | unix.CLONE_VFORK | uint32(unix.SIGCHLD)}, deny},
		{"a thread in a new namespace", arch, unix.SYS_CLONE, [3]uint32{thread | unix.CLONE_NEWNET}, deny},
		{"the newer clone call", arch, unix.SYS_CLONE3, [3]uint32{}, deny},
		{"memory", arch, unix.SYS_MMAP, [3]uint32{0, 4096, unix.PROT_READ | unix.PROT_WRITE}, allow},
		{"memory to run", arch, unix.SYS_MMAP, [3]uint32{0, 4096, unix.PROT_READ | unix.PROT_EXEC}, deny},
		{"making memory runnable", arch, unix.SYS_MPROTECT, [3]uint32{0, 4096, unix.PROT_EXEC}, deny},
		{"a signal to itself", arch, unix.SYS_TGKILL, [3]uint32{self, 4712, 23}, allow},
		{"a signal to another", arch, unix.SYS_TGKILL, [3]uint32{self + 1, self + 1, 23}, deny},
		{"naming memory", arch, unix.SYS_PRCTL, [3]uint32{unix.PR_SET_VMA}, allow},
		{"another label", arch, unix.SYS_PRCTL, [3]uint32{unix.PR_SET_DUMPABLE}, deny},
		{"opening", arch, unix.SYS_OPENAT, [3]uint32{}, deny},
		{"a socket", arch, unix.SYS_SOCKET, [3]uint32{}, deny},
		{"a program", arch, unix.SYS_EXECVE, [3]uint32{}, deny},
		{"a program by descriptor", arch, unix.SYS_EXECVEAT, [3]uint32{}, deny},
		{"an unknown call", arch, 9999, [3]uint32{}, deny},
		{"x32", arch, x32 | unix.SYS_READ, [3]uint32{}, deny},
		{"another architecture", unix.AUDIT_ARCH_I386, unix.SYS_READ, [3]uint32{}, kill},
	}
	for _, tt := range tests {
		// The interpreter reads big-endian numbers, the kernel its own: each field is swapped.
		data := binary.BigEndian.AppendUint32(nil, tt.nr)
		data = binary.BigEndian.AppendUint32(data, tt.arch)
		data = binary.BigEndian.AppendUint64(data, 0) // the instruction pointer
		for _, a := range tt.args {
			data = binary.BigEndian.AppendUint32(data, a)
			data = binary.BigEndian.AppendUint32(data, 0)
		}
		got, err := vm.Run(data)
		if err != nil || uint32(got) != uint32(tt.want) {
			t.Errorf("%s: the filter returned %#x, %v, want %#x", tt.reason, got, err, tt.want)
		}
	}
}
