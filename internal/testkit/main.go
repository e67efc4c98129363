package testkit

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package and stops shared resources. A package calls it from TestMain:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// It also calls stops.
//
// Without this call nothing is left behind either: the cluster ends with the process.
func Main(m *testing.M, stops ...interface{ Stop() error }) {
	code := m.Run()
	err := shared.stop()
	for _, s := range stops {
		err = errors.Join(err, s.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
