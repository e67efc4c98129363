package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	// resync bounds how long a change that the feed has missed stays unseen.
	resync = 15 * time.Second
	// minInterval is the least time between two reads: a busy fleet changes more often than that.
	minInterval = 100 * time.Millisecond
)

// step is the result of one read.
type step struct {
	done  bool
	again time.Duration // read again after this long at the latest; 0 means the resync interval
}

// follow calls read at once and after each relevant change in the tenants of the clients, until it is done or fails. If the
// server goes away meanwhile, follow waits for it.
func (a *app) follow(ctx context.Context, clients []*client.Client, relevant func(apiv1.Change) bool, read func(context.Context) (step, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, ended := wait.NewSignal(), make(chan error, len(clients))
	notify := func(n client.Notice) error {
		if n.Reread || relevant(n.Change) {
			wake.Set()
		}
		return nil
	}
	var feeds sync.WaitGroup
	for _, c := range clients {
		feeds.Go(func() { ended <- c.Follow(ctx, notify) })
	}
	defer feeds.Wait()
	defer cancel()
	for away, first := false, true; ; first = false {
		now, err := read(ctx)
		switch {
		case err == nil && now.done:
			return nil
		case err == nil:
			away = false
		case ctx.Err() != nil:
			return ctx.Err() // the caller gave up, not the server
		case first || !temporary(err):
			return err
		case !away:
			away = true
			fmt.Fprintf(a.Err, "Lost the connection to the server, retrying: %v\n", err)
		}
		if err := pause(ctx, minInterval, nil, ended); err != nil {
			return err
		}
		if err := pause(ctx, cmp.Or(now.again, resync), wake, ended); err != nil {
			return err
		}
	}
}

// pause waits for a change, or for d. It fails when a feed has ended, and keeps the error for the next call.
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
