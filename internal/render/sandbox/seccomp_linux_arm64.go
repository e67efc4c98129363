package sandbox

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// allowedHere lists system calls that only this architecture has.
var allowedHere []uintptr
