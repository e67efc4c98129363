package sandbox

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// signalsFixed is the erratum after which threads of one process may signal each other although each has
// entered its domain by itself, as Go needs.
const signalsFixed = 1 << 1

// restrictByLandlock denies every access that this kernel's Landlock knows of, without exception.
func restrictByLandlock(Options) error {
	if _, err := ll.LandlockGetABIVersion(); err != nil {
		return fmt.Errorf("this kernel does not have it: %w", err)
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
