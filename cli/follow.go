package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

const (
	// backstop is for changes that the feed did not tell of.
	backstop = 15 * time.Second
	// breath keeps a busy fleet from being read anew for each of its changes.
	breath = 100 * time.Millisecond
)

// step is what a look at the server led to.
type step struct {
	done  bool
	again time.Duration // look again after this long at the latest; 0 means whenever
}

// follow calls look at once and after each relevant change, until it is done or fails. A server
// that goes away while we watch is waited for.
func (a *app) follow(ctx context.Context, c *client.Client, relevant func(apiv1.Change) bool, look func(context.Context) (step, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, func(n client.Notice) error {
			if n.Reread || relevant(n.Change) {
				select {
				case wake <- struct{}{}:
				default: // a look is due already
				}
			}
			return nil
		})
	}()
	defer func() { cancel(); <-ended }()
	for away, first := false, true; ; first = false {
		now, err := look(ctx)
		switch {
		case err == nil && now.done:
			return nil
		case err == nil:
			away = false
		case ctx.Err() != nil:
			return ctx.Err() // it is we who gave up, not the server
		case first || !temporary(err):
			return err
		case !away:
			away = true
			fmt.Fprintf(a.Err, "Lost the server, trying again: %v\n", err)
		}
		if err := pause(ctx, breath, nil, ended); err != nil {
			return err
		}
		if err := pause(ctx, cmp.Or(now.again, backstop), wake, ended); err != nil {
			return err
		}
	}
}

// pause waits for a wake-up, or for d; it fails when the feed has ended, and puts that back.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}, ended chan error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-ended:
		ended <- err
		return err
	case <-wake:
		return nil
	case <-timer.C:
		return nil
	}
}

func temporary(err error) bool {
	var unreachable *client.UnreachableError
	return errors.As(err, &unreachable) || client.Status(err) >= http.StatusInternalServerError
}
