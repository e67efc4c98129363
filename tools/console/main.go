// Command console bundles the web console: TSX and CSS in, one script, one style sheet and one
// page out. It runs esbuild inside Go, so that no build of Kedge needs Node, and it reads nothing
// but the folder it is given, so that the same sources always give the same bytes.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	web := flag.String("web", "", "folder of the console's sources")
	out := flag.String("out", "", "folder to write the bundle to; files there that are not part of it are removed")
	flag.Parse()
	if err := run(*web, *out); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(web, out string) error {
	if web == "" || out == "" {
		return fmt.Errorf("both -web and -out are needed")
	}
	if err := verifySums(web + "/vendor"); err != nil {
		return err
	}
	files, err := bundle(web)
	if err != nil {
		return err
	}
	return replaceDir(out, files)
}
