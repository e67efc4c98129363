package child

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/render/sandbox"
)

// argument starts a program as a child. No command has this name.
const argument = "render-child"

// Requested reports whether the program was started as a child. main calls it first.
func Requested(args []string) bool { return len(args) == 3 && args[1] == argument }

const (
	// threads is far more than Go needs for reading one pipe.
	threads = 64
	// processors is enough for one render and the garbage collector.
	processors = 2
)

// Main runs a child: it confines itself and serves its parent over standard input and output. It returns the
// exit code.
func Main(args []string, renderers map[fleet.SourceKind]Renderer) int {
	options, err := sandbox.ParseOptions(args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "render-child:", err)
		return 2
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	debug.SetMaxThreads(threads)
	debug.SetMaxStack(int(min(options.Memory/4, math.MaxInt32)))
	// Below the memory limit of the process, so that garbage is collected before.
	debug.SetMemoryLimit(options.Memory / 4 * 3)
	// The result must not depend on the machine.
	time.Local = time.UTC
	status := sandbox.Enter(options)
	out := os.Stdout
	os.Stdout = os.Stderr // output of libraries must not reach the parent
	if err := Serve(os.Stdin, out, status, renderers); err != nil {
		fmt.Fprintln(os.Stderr, "render-child:", err)
		return 1
	}
	return 0
}
