package testkit

import (
	"fmt"
	"os"
	"testing"
)

// Main runs the tests of a package and stops what they share. A package calls it from TestMain:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
//
// A package that forgets leaves nothing behind either: the cluster ends with the process.
func Main(m *testing.M) {
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
