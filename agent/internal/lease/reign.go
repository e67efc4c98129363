package lease

import "context"

// Reign is the work of a replica from when it has taken the Lease until another one may have worked in
// its place. While the API server is away nobody can: the work goes on, with nothing that changes the
// cluster, and this replica leads again when it finds the Lease as it left it.
type Reign interface {
	// Run works until ctx ends. Whatever changes the cluster has to pass the Fence: it is shut while this
	// replica does not lead.
	Run(ctx context.Context) error
	// Lead runs beside Run while this replica leads, and again after each time that it could not say so.
	Lead(ctx context.Context) error
}

// reign is a Reign that runs.
type reign struct {
	Reign
	stop context.CancelFunc
	done chan error
}

// crown begins a reign, unless there is one that goes on. quit is called when it ends by itself.
func (e *Elector) crown(ctx context.Context, quit func(), begin func(context.Context) (Reign, error)) error {
	if e.reigning != nil {
		return nil
	}
	own, stop := context.WithCancel(ctx)
	work, err := begin(own)
	if err != nil {
		stop()
		return err
	}
	r := &reign{Reign: work, stop: stop, done: make(chan error, 1)}
	go func() {
		r.done <- work.Run(own)
		if own.Err() == nil {
			quit()
		}
	}()
	e.reigning = r
	return nil
}

// depose ends the reign, if there is one, and returns how it ended.
func (e *Elector) depose() error {
	if e.reigning == nil {
		return nil
	}
	r := e.reigning
	e.reigning = nil
	r.stop()
	return <-r.done
}

// usurped reports whether others may have led since this replica last did: only what this very process
// has written, and nobody since, says that they have not.
func (e *Elector) usurped(seen sighting) bool {
	return e.reigning != nil && seen.holder() != e.holder
}

// yield ends a reign that others have put an end to, before this replica may lead again.
func (e *Elector) yield() error {
	if !e.usurped(e.sighted()) {
		return nil
	}
	return e.depose()
}
