//go:build !linux

package child

import "os"

// rootDir is where a child is; "" means where its parent is.
const rootDir = ""

// Self is the file of the running program. It may be a child only if its main asks Requested: a program
// that does not would do its own work again, and start the next.
func Self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
