//go:build !unix

package child

import "time"

// cpuTime is not available here.
func cpuTime() time.Duration { return 0 }
