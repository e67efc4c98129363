//go:build !unix

package localcluster

import (
	"errors"
	"fmt"
	"os/exec"
)

// group makes programs that contain the demo compile on every platform.
type group struct{}

func newGroup(string) (*group, error) {
	return nil, fmt.Errorf("running a control plane on this operating system: %w", errors.ErrUnsupported)
}

func (*group) start(*exec.Cmd, func(error)) error { return errors.ErrUnsupported }

func (*group) stop() error { return nil }
