package sandbox

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// allowedHere is what only this architecture has.
var allowedHere []uintptr
