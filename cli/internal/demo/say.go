package demo

import (
	"fmt"
	"io"
	"time"
)

// teller tells a person what goes on, line by line, on a terminal as in a log.
type teller struct {
	out     io.Writer
	started time.Time
}

func newTeller(out io.Writer) *teller { return &teller{out: out, started: time.Now()} }

func (t *teller) line(format string, args ...any) {
	fmt.Fprintf(t.out, "%6.1fs  %s\n", time.Since(t.started).Seconds(), fmt.Sprintf(format, args...))
}

// step tells what is begun and how long it took.
func (t *teller) step(what string, do func() error) error {
	begun := time.Now()
	t.line("%s …", what)
	if err := do(); err != nil {
		return err
	}
	if took := time.Since(begun); took > time.Second {
		t.line("  done in %.1f s", took.Seconds())
	}
	return nil
}

// explain tells where to look and what to try.
func (d *demo) explain() {
	p := func(format string, args ...any) { fmt.Fprintf(d.cfg.Out, format+"\n", args...) }
	p("")
	p("Everything is Synced and Current.")
	p("")
	p("  console   %s/#token=%s", d.server.URL, d.server.Token)
	p("  token     %s", d.server.Token)
	p("  kedge     %s, logged in", d.kedge)
	p("  logs      %s/*.log", d.dir)
	p("")
	p("Three things to try in another terminal, line by line; a result may take a second:")
	for i, t := range d.tries() {
		p("\n%d. %s:", i+1, t.title)
		for _, line := range t.lines() {
			p("     %s", line)
		}
	}
	p("")
	p("Ctrl-C ends the demo and leaves nothing behind.")
}
