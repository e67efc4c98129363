package testkit_test

import (
	"fmt"
	"testing"
)

// recorder replaces a test that must fail.
type recorder struct {
	testing.TB
	message string
}

// fatal ends the run of a recorder, as FailNow ends a test.
type fatal struct{}

func (r *recorder) Errorf(format string, args ...any) { r.message = fmt.Sprintf(format, args...) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(fatal{})
}

func (r *recorder) run(f func()) {
	defer func() {
		if p := recover(); p != nil && p != (fatal{}) {
			panic(p)
		}
	}()
	f()
}
