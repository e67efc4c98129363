//go:build unix

package cli

import (
	"os"
	"syscall"
)

// resized are the signals of a terminal that has another size.
var resized = []os.Signal{syscall.SIGWINCH}
