//go:build !unix

package child

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }
