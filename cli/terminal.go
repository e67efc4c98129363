package cli

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
)

// terminalSizes are the sizes of a terminal, as the user changes them.
type terminalSizes struct {
	file    *os.File
	changed chan os.Signal
	stopped chan struct{}
	stop    func()
}

func newTerminalSizes(file *os.File) *terminalSizes {
	s := &terminalSizes{file: file, changed: make(chan os.Signal, 1), stopped: make(chan struct{})}
	s.changed <- nil // the first size
	if len(resized) > 0 {
		signal.Notify(s.changed, resized...)
	}
	s.stop = sync.OnceFunc(func() {
		signal.Stop(s.changed)
		close(s.stopped)
	})
	return s
}

// Next implements remotecommand.TerminalSizeQueue. It waits for a change.
func (s *terminalSizes) Next() *remotecommand.TerminalSize {
	for {
		select {
		case <-s.stopped:
			return nil
		case <-s.changed:
		}
		if width, height, err := term.GetSize(int(s.file.Fd())); err == nil {
			return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
		}
	}
}
