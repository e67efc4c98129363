package sandbox

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// signalsFixed is the erratum that allows threads of one process to signal each other although each has entered
// its own domain, as Go requires.
const signalsFixed = 1 << 1

// restrictByLandlock denies every access that the Landlock of this kernel supports, without exception.
func restrictByLandlock(Options) error {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		return fmt.Errorf("this kernel does not support it: %w", err)
	}
	config := landlock.V11
	if errata, err := ll.LandlockGetErrata(); err != nil || errata&signalsFixed == 0 {
		config.Scoped &^= ll.ScopeSignal
	}
	if err := config.BestEffort().Restrict(); err != nil {
		return fmt.Errorf("entering it: %w", err)
	}
	return nil
}
