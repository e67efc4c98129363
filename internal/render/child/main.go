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

// argument turns a program into a child. No command is called so.
const argument = "render-child"

// Requested reports whether a program was started to be a child. It is the first thing that main asks.
func Requested(args []string) bool { return len(args) == 3 && args[1] == argument }

const (
	// threads is many more than Go takes for what waits for one pipe.
	threads = 64
	// processors is enough for one render beside its garbage collector.
	processors = 2
)

// Main is the whole life of a child: it confines itself and serves its parent by standard input and
// output. It returns the exit code.
func Main(args []string, renderers map[fleet.SourceKind]Renderer) int {
	options, err := sandbox.ParseOptions(args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "render-child:", err)
		return 2
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), processors))
	debug.SetMaxThreads(threads)
	debug.SetMaxStack(int(min(options.Memory/4, math.MaxInt32)))
	// Below what would end the process, so that rubbish is collected before.
	debug.SetMemoryLimit(options.Memory / 4 * 3)
	// The result must not depend on where it is rendered.
	time.Local = time.UTC
	status := sandbox.Enter(options)
	out := os.Stdout
	os.Stdout = os.Stderr // whatever a library prints is not for the parent
	if err := Serve(os.Stdin, out, status, renderers); err != nil {
		fmt.Fprintln(os.Stderr, "render-child:", err)
		return 1
	}
	return 0
}
