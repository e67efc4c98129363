package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/cluster"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

func (a *app) eventsCommand() *cobra.Command {
	var live, follow bool
	res := eventResource(a.Now)
	cmd := getCommand(a, "events", res)
	list := cmd.RunE
	cmd.Use, cmd.Args = "events [DEPLOYMENT]", cobra.MaximumNArgs(1)
	cmd.Long = "Lists the events of Kedge, as kedge get events does: of all deployments, or of one.\n\n" +
		"With --live, lists the Events of Kubernetes about the objects of a deployment, and about the pods and other objects that they own, from\n" +
		"all its clusters. They are read through the tunnels of the agents with your own rights: you need an access rule (kedge access), and\n" +
		"permission in the cluster to list events, pods and ReplicaSets."
	cmd.Example = "kedge events web\nkedge events web --live --agent prod-1\nkedge events web --live --follow"
	cmd.Flags().BoolVar(&live, "live", false, "Events of Kubernetes from the clusters of DEPLOYMENT")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "the same as --watch")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			res.query.Set("deployment", bareName(args[0], deploymentResource().words()))
		}
		if follow {
			must(cmd.Flags().Set("watch", "true"))
		}
		if !live {
			return list(cmd, nil)
		}
		return a.liveEvents(cmd, res)
	}
	return cmd
}

// liveEvent is an Event of Kubernetes in one of the clusters.
type liveEvent struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Agent   string    `json:"agent"`
	Object  string    `json:"object"`
	Count   int       `json:"count"`
	Message string    `json:"message"`
	UID     string    `json:"uid"`
}

func liveEventResource() resource[liveEvent] {
	return resource[liveEvent]{
		use: "events", name: func(e liveEvent) string { return e.UID },
		header: []string{"LAST SEEN", "TYPE", "REASON", "AGENT", "OBJECT", "COUNT", "+TIME", "MESSAGE"},
		rows: func(e liveEvent, now time.Time) [][]string {
			return [][]string{{output.Age(e.At, now), e.Type, e.Reason, e.Agent, e.Object, fmt.Sprint(e.Count), stamp(e.At), cell(e.Message)}}
		},
	}
}

// eventReader prints the Events of many clusters.
type eventReader struct {
	*clusterReader
	getter[liveEvent]
	since time.Time
	mu    sync.Mutex
	shown map[string]bool // what was printed
}

func (a *app) liveEvents(cmd *cobra.Command, res resource[apiv1.Event]) error {
	flags := cmd.Flags()
	deployment := res.query.Get("deployment")
	for _, name := range []string{"before", "limit", "all-tenants"} {
		if flags.Changed(name) {
			return &exitError{exitUsage, "--live cannot be used together with --" + name, "kedge events --help"}
		}
	}
	if deployment == "" {
		return &exitError{exitUsage, "kedge events --live needs DEPLOYMENT", "kedge events --help"}
	}
	r := &eventReader{shown: map[string]bool{}}
	r.getter = getter[liveEvent]{app: a, res: liveEventResource()}
	r.text, r.allowed = flags.Lookup("output").Value.String(), output.Formats
	r.noHeaders, _ = flags.GetBool("no-headers")
	if err := r.parse(); err != nil {
		return err
	}
	if text := res.query.Get("since"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Errorf("reading --since: %w", err)
		}
		r.since = at
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	watch, _ := flags.GetBool("watch")
	return r.run(cmd.Context(), c, deployment, res.query["agent"], watch)
}

func (r *eventReader) run(ctx context.Context, c *client.Client, deployment string, agents []string, watch bool) (err error) {
	if r.clusterReader, err = r.getter.app.clustersOf(ctx, c, deployment, agents); err != nil {
		return err
	}
	var all []entry[liveEvent]
	if !watch {
		err := r.each(ctx, func(ctx context.Context, t liveTarget) error {
			for _, namespace := range cluster.EventNamespaces(t.objects) {
				events, err := t.Events(ctx, namespace, t.owners)
				if err != nil {
					return err
				}
				r.mu.Lock()
				for _, e := range events {
					if !e.Last().Before(r.since) {
						all = append(all, entry[liveEvent]{item: liveEventOf(t.Agent, e)})
					}
				}
				r.mu.Unlock()
			}
			return nil
		})
		if err != nil {
			return err
		}
		return r.print(sorted(all))
	}
	return r.followAll(ctx)
}

func sorted(events []entry[liveEvent]) []entry[liveEvent] {
	slices.SortStableFunc(events, func(a, b entry[liveEvent]) int {
		if by := a.item.At.Compare(b.item.At); by != 0 {
			return by
		}
		return strings.Compare(a.item.Agent+a.item.UID, b.item.Agent+b.item.UID)
	})
	return events
}

// liveEventOf makes an event printable: its text comes from any program in a cluster.
func liveEventOf(agent string, e cluster.Event) liveEvent {
	return liveEvent{
		At: e.Last(), Type: plaintext.Line(e.Type, 0), Reason: plaintext.Line(e.Reason, 0), Agent: agent, Object: plaintext.Line(e.Ref().String(), 0),
		Count: e.Times(), Message: plaintext.Line(e.Message, 0), UID: e.Metadata.UID,
	}
}

// followAll prints the events that there are, by time for each cluster, and then each new one.
func (r *eventReader) followAll(ctx context.Context) error {
	var watches sync.WaitGroup
	err := r.each(ctx, func(ctx context.Context, t liveTarget) error {
		for _, namespace := range cluster.EventNamespaces(t.objects) {
			listed := make(chan error, 1)
			watches.Go(func() { listed <- r.followNamespace(ctx, t, namespace, func() { listed <- nil }) })
			if err := <-listed; err != nil {
				return err
			}
		}
		return nil
	})
	watches.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return failure("no events are followed any more", accessHelp)
}

func (r *eventReader) followNamespace(ctx context.Context, t liveTarget, namespace string, ready func()) error {
	var before []entry[liveEvent]
	began := false
	err := t.FollowEvents(ctx, namespace, cluster.Follower[cluster.Event]{
		Each: func(e cluster.Event, first bool) {
			if e.Last().Before(r.since) || !t.owners.HasEvent(ctx, e) {
				return
			}
			found := entry[liveEvent]{item: liveEventOf(t.Agent, e)}
			if first {
				before = append(before, found)
				return
			}
			r.show(found)
		},
		Listed: func() {
			r.show(sorted(before)...)
			began = true
			ready()
		},
		Lost: func(err error) {
			r.warn("agent %s: events are not seen until the cluster can be read again: %v", t.Agent, err)
		},
	})
	if began && ctx.Err() == nil {
		r.warn("agent %s: events are not followed any more: %v", t.Agent, err)
	}
	return err
}

// show prints events that were not printed yet.
func (r *eventReader) show(events ...entry[liveEvent]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := len(r.shown) == 0
	events = slices.DeleteFunc(events, func(e entry[liveEvent]) bool {
		key := fmt.Sprint(e.item.Agent, e.item.UID, e.item.Count, e.item.At)
		before := r.shown[key]
		r.shown[key] = true
		return before
	})
	if len(events) == 0 {
		return
	}
	r.printing.Lock()
	defer r.printing.Unlock()
	if err := r.printEach(events, first); err != nil {
		fmt.Fprintln(r.getter.app.Err, "Warning:", err)
	}
}

// eventsAbout returns the Events about one object, by time.
func (t liveTarget) eventsAbout(ctx context.Context, o apiv1.Object) ([]liveEvent, error) {
	events, err := t.EventsAbout(ctx, o)
	var found []entry[liveEvent]
	for _, e := range events {
		found = append(found, entry[liveEvent]{item: liveEventOf(t.Agent, e)})
	}
	var out []liveEvent
	for _, e := range sorted(found) {
		out = append(out, e.item)
	}
	return out, err
}
