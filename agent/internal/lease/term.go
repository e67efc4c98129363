package lease

import "context"

// Term is the work of a leader, from when its replica acquires the Lease until another replica may have led. While the API
// server is unavailable no replica can lead. The term continues then, but the Fence rejects its changes to the cluster. The
// replica leads again, in the same term, when it finds that it still holds the Lease.
type Term interface {
	// Run works until ctx ends. Every request that changes the cluster has to pass the Fence, which is closed while this
	// replica does not lead.
	Run(ctx context.Context) error
	// Lead runs beside Run while this replica leads. It is called again when the replica leads again in the same term.
	Lead(ctx context.Context) error
}

// runningTerm is a Term whose Run was called.
type runningTerm struct {
	Term
	cancel context.CancelFunc
	done   chan error
}

// startTerm starts a term unless one is running. It calls stopElector when the term ends by itself.
func (e *Elector) startTerm(ctx context.Context, stopElector func(), newTerm func(context.Context) (Term, error)) error {
	if e.term != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	term, err := newTerm(ctx)
	if err != nil {
		cancel()
		return err
	}
	t := &runningTerm{Term: term, cancel: cancel, done: make(chan error, 1)}
	go func() {
		t.done <- term.Run(ctx)
		if ctx.Err() == nil {
			stopElector()
		}
	}()
	e.term = t
	return nil
}

// stopTerm stops the running term, if there is one, and returns its error.
func (e *Elector) stopTerm() error {
	if e.term == nil {
		return nil
	}
	t := e.term
	e.term = nil
	t.cancel()
	return <-t.done
}

// superseded reports whether another replica may have led since this one last did. That is certain not to be the case only
// while the Lease names this very process as its holder.
func (e *Elector) superseded(lease observedLease) bool {
	return e.term != nil && lease.holder() != e.identity
}

// stopSupersededTerm stops the term if another replica may have led, before this replica may lead again.
func (e *Elector) stopSupersededTerm() error {
	if !e.superseded(e.observed()) {
		return nil
	}
	return e.stopTerm()
}
