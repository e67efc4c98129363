// Package stage runs the long-lived parts of a program. It starts them in order and stops them in reverse order, so that a
// part outlives all parts that were started after it and may depend on it.
package stage

import (
	"context"
	"errors"
	"fmt"
)

// Stage is a part of a program. Run works until its context ends and returns nil after an orderly stop.
type Stage struct {
	Name string
	Run  func(ctx context.Context) error
}

// Run runs all stages until ctx ends or one of them ends by itself. Then it stops the others, the last one first, each after
// the following ones have ended. It returns all errors.
func Run(ctx context.Context, stages ...Stage) error {
	ended := make(chan struct{}, len(stages))
	running := make([]running, 0, len(stages))
	for _, s := range stages {
		running = append(running, start(ctx, s, ended))
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	var errs []error
	for i := len(running) - 1; i >= 0; i-- {
		running[i].stop()
		errs = append(errs, <-running[i].err)
	}
	return errors.Join(errs...)
}

type running struct {
	stop context.CancelFunc
	err  chan error
}

func start(ctx context.Context, s Stage, ended chan<- struct{}) running {
	// Without the cancellation of ctx, which would stop all stages at the same time.
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := running{stop: stop, err: make(chan error, 1)}
	go func() {
		err := s.Run(own)
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", s.Name, err)
		case own.Err() == nil:
			err = fmt.Errorf("%s ended by itself", s.Name)
		}
		r.err <- err
		ended <- struct{}{}
	}()
	return r
}
