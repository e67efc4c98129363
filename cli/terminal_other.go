//go:build !unix

package cli

import "os"

// resized is empty: this system has no signal for a terminal that has another size.
var resized []os.Signal
