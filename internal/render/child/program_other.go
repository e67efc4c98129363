//go:build !linux

package child

import "os"

// rootDir is the working folder of a child; "" means that of its parent.
const rootDir = ""

// Self returns the file of the running program. It works only if main calls Requested: otherwise the child
// would do the work of its parent and start the next child.
func Self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
