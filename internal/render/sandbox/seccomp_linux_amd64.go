package sandbox

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// allowedHere lists system calls that only this architecture has.
var allowedHere = []uintptr{unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_ARCH_PRCTL, unix.SYS_TIME}
