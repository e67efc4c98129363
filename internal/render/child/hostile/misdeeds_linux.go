package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kedge-dev/kedge/internal/manifest"
	"github.com/kedge-dev/kedge/internal/render/child"
	"github.com/kedge-dev/kedge/internal/render/treefs"
)

// misdeeds are jobs that should end a process, or almost.
var misdeeds = map[string]func(context.Context, treefs.Files) (child.Result, error){
	"allocate":   func(context.Context, treefs.Files) (child.Result, error) { return allocate() },
	"map":        func(context.Context, treefs.Files) (child.Result, error) { return mapMemory() },
	"spin":       func(context.Context, treefs.Files) (child.Result, error) { return spin() },
	"hang":       func(context.Context, treefs.Files) (child.Result, error) { select {} },
	"output":     func(context.Context, treefs.Files) (child.Result, error) { return output() },
	"big-object": func(context.Context, treefs.Files) (child.Result, error) { return bigObject() },
	"many":       func(context.Context, treefs.Files) (child.Result, error) { return many() },
	"goroutines": func(context.Context, treefs.Files) (child.Result, error) { return goroutines() },
	"threads":    func(context.Context, treefs.Files) (child.Result, error) { return threads() },
	"recurse":    func(context.Context, treefs.Files) (child.Result, error) { return recurse(0) },
	"panic":      func(context.Context, treefs.Files) (child.Result, error) { panic("oh no") },
	"exit":       func(context.Context, treefs.Files) (child.Result, error) { os.Exit(0); return child.Result{}, nil },
	"stderr":     func(context.Context, treefs.Files) (child.Result, error) { return chatter(os.Stderr) },
	"stdout": func(context.Context, treefs.Files) (child.Result, error) {
		fmt.Println("a library prints")
		return who()
	},
	"garbage":    func(context.Context, treefs.Files) (child.Result, error) { return garbage() },
	"bad-object": func(context.Context, treefs.Files) (child.Result, error) { return badObject() },
	"long-notes": func(context.Context, treefs.Files) (child.Result, error) { return longNotes() },
	"who":        func(context.Context, treefs.Files) (child.Result, error) { return who() },
	"taint": func(context.Context, treefs.Files) (child.Result, error) {
		r, err := who()
		r.Tainted = true
		return r, err
	},
	"fault": func(context.Context, treefs.Files) (child.Result, error) {
		return child.Result{}, errors.New("out of my mind")
	},
	"mistake": func(context.Context, treefs.Files) (child.Result, error) {
		return child.Result{}, &treefs.Error{Path: "a/b.yaml", Problem: "it is wrong"}
	},
	"read": readAll,
	"read-dotdot": func(ctx context.Context, f treefs.Files) (child.Result, error) {
		_, err := f.Read(ctx, "../../etc/passwd")
		return child.Result{}, err
	},
	"ask-for-ever": func(ctx context.Context, f treefs.Files) (child.Result, error) {
		for {
			if _, err := f.Stat(ctx, "."); err != nil {
				return child.Result{}, err
			}
		}
	},
}

// counter shows whether two jobs ran in one process.
var counter int

// who returns how many jobs this process has executed.
func who() (child.Result, error) {
	counter++
	return child.Result{Objects: []manifest.Object{object("who", fmt.Sprint(counter))}}, nil
}

func allocate() (child.Result, error) {
	var kept [][]byte
	for range 10 << 10 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	return child.Result{Objects: []manifest.Object{object("allocated", fmt.Sprint(len(kept)))}}, nil
}

// mapMemory allocates memory that Go does not account for.
func mapMemory() (child.Result, error) {
	for i := range 10 << 4 {
		b, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_POPULATE)
		if err != nil {
			return child.Result{Objects: []manifest.Object{object("mapped", fmt.Sprint(64*i))}}, nil
		}
		b[0] = 1
	}
	return child.Result{Objects: []manifest.Object{object("mapped", "all")}}, nil
}

func spin() (child.Result, error) {
	for n := 0; ; n++ {
		if n < 0 {
			return child.Result{}, nil
		}
	}
}

func output() (child.Result, error) {
	text := strings.Repeat("x", 1<<20)
	out := child.Result{}
	for i := range 1 << 10 { // one text, many times: memory is not the limit
		out.Objects = append(out.Objects, object(fmt.Sprintf("o-%d", i), text))
	}
	return out, nil
}

func bigObject() (child.Result, error) {
	return child.Result{Objects: []manifest.Object{object("big", strings.Repeat("x", 17<<20))}}, nil
}

func many() (child.Result, error) {
	out := child.Result{}
	for i := range 20_000 {
		out.Objects = append(out.Objects, object(fmt.Sprintf("o-%d", i), ""))
	}
	return out, nil
}

func goroutines() (child.Result, error) {
	for range 100_000_000 {
		go func() { select {} }()
	}
	return child.Result{}, nil
}

func threads() (child.Result, error) {
	var wg sync.WaitGroup
	for range 10_000 {
		wg.Go(func() {
			runtime.LockOSThread()
			select {}
		})
	}
	wg.Wait()
	return child.Result{}, nil
}

func recurse(n int) (child.Result, error) {
	r, err := recurse(n + 1)
	r.Notes = append(r.Notes, fmt.Sprint(n))
	return r, err
}

func chatter(f *os.File) (child.Result, error) {
	for {
		if _, err := f.WriteString(strings.Repeat("chatter ", 1000)); err != nil {
			return child.Result{}, err
		}
	}
}

// garbage writes bytes that are not part of the protocol.
func garbage() (child.Result, error) {
	_, _ = unix.Write(1, []byte("\x00\x00\x00\x05?????"))
	select {}
}

func badObject() (child.Result, error) {
	o := object("x", "")
	o.Source = "chart/templates/x.yaml"
	o.Content["metadata"] = map[string]any{"name": "../x"}
	return child.Result{Objects: []manifest.Object{o}}, nil
}

func longNotes() (child.Result, error) {
	out, _ := who()
	for range 1000 {
		out.Notes = append(out.Notes, "\x1b[31m"+strings.Repeat("n", 10_000))
	}
	return out, nil
}

// readAll reads every file.
func readAll(ctx context.Context, files treefs.Files) (child.Result, error) {
	out := child.Result{}
	err := readBelow(ctx, files, ".", &out)
	return out, err
}

func readBelow(ctx context.Context, files treefs.Files, folder string, out *child.Result) error {
	nodes, err := files.List(ctx, folder)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		at := path.Join(folder, n.Name)
		if n.Kind == treefs.Dir {
			if err := readBelow(ctx, files, at, out); err != nil {
				return err
			}
			continue
		}
		data, err := files.Read(ctx, at)
		if err != nil {
			return err
		}
		out.Objects = append(out.Objects, object(fmt.Sprintf("f-%d", len(out.Objects)), at+"="+string(data)))
	}
	return nil
}
