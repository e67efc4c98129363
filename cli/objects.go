package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/output"
	"github.com/kedge-dev/kedge/internal/apiv1"
)

// liveObject is an object of a deployment in one cluster.
type liveObject struct {
	Agent  string         `json:"agent"`
	Status apiv1.Object   `json:"status"`           // as the agent reported it
	Object map[string]any `json:"object,omitempty"` // as it is in the cluster
	Error  string         `json:"error,omitempty"`
	live   string         // Present, NotFound, or Unreadable

	events   []liveEvent // about it, if they were asked for
	noEvents error       // why they could not be read
}

const (
	livePresent    = "Present"
	liveNotFound   = "NotFound"
	liveUnreadable = "Unreadable"
)

const objectHelp = "Objects are named KIND/NAME or KIND.GROUP/NAMESPACE/NAME. Only objects that belong to the deployment are shown, read through the\n" +
	"tunnels of the agents with your own rights: you need an access rule (kedge access), and permission in the cluster to get them.\n" +
	"Values of Secrets are never shown."

// getObjectsCommand makes kedge get objects.
func (a *app) getObjectsCommand() *cobra.Command {
	var out outputFlags
	var agents []string
	cmd := &cobra.Command{
		Use: "objects DEPLOYMENT [KIND/NAME…]", Aliases: []string{"object", "obj"}, Short: "List the objects of a deployment as they are in its clusters now",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeFirst(completeNames(a, deploymentResource())),
		Long:    "Lists the objects of a deployment as they are in its clusters now. -o yaml prints them.\n\n" + objectHelp,
		Example: "kedge get objects web\nkedge get objects web Deployment/web --agent prod-1 -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.parse(); err != nil {
				return err
			}
			objects, err := a.liveObjects(cmd.Context(), args, agents, false)
			if err != nil {
				return err
			}
			if len(args) == 2 && len(objects) == 1 && objects[0].live == livePresent && !out.IsTable() && !out.IsName() {
				return out.Encode(a.Out, objects[0].Object)
			}
			g := getter[liveObject]{app: a, res: liveObjectResource(), outputFlags: out}
			var entries []entry[liveObject]
			for _, o := range objects {
				entries = append(entries, entry[liveObject]{item: o})
			}
			return g.print(entries)
		},
	}
	agentsFlag(cmd.Flags(), &agents)
	out.add(cmd)
	return cmd
}

func liveObjectResource() resource[liveObject] {
	return resource[liveObject]{
		use: "objects", name: func(o liveObject) string { return o.Agent + " " + objectName(o.Status) },
		header: []string{"AGENT", "OBJECT", "SYNC", "HEALTH", "LIVE", "AGE", "MESSAGE"},
		rows: func(o liveObject, now time.Time) [][]string {
			age := "-"
			if at := o.created(); !at.IsZero() {
				age = output.Age(at, now)
			}
			return [][]string{{o.Agent, objectName(o.Status), o.Status.Sync, o.Status.Health, o.live, age, cell(sentence(o.Error))}}
		},
	}
}

// created is when the object was created; zero if that is not known.
func (o liveObject) created() time.Time {
	metadata, _ := o.Object["metadata"].(map[string]any)
	text, _ := metadata["creationTimestamp"].(string)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// liveObjects reads objects of a deployment: all, or those that the arguments after the first name.
func (a *app) liveObjects(ctx context.Context, args, agents []string, events bool) ([]liveObject, error) {
	c, err := a.connect()
	if err != nil {
		return nil, err
	}
	r, err := a.clustersOf(ctx, c, args[0], agents)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []liveObject
	unmatched := slices.Clone(args[1:])
	err = r.each(ctx, func(ctx context.Context, t liveTarget) error {
		var wanted []apiv1.Object
		for _, o := range t.objects {
			if len(args) == 1 || slices.ContainsFunc(args[1:], func(name string) bool { return namesObject(name, o) }) {
				wanted = append(wanted, o)
			}
		}
		found, err := t.readObjects(ctx, wanted, events)
		mu.Lock()
		defer mu.Unlock()
		unmatched = slices.DeleteFunc(unmatched, func(name string) bool {
			return slices.ContainsFunc(wanted, func(o apiv1.Object) bool { return namesObject(name, o) })
		})
		all = append(all, found...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(unmatched) > 0 {
		return nil, failure(fmt.Sprintf("deployment %q has no object %q", r.deployment.Name, unmatched[0]), "kedge tree "+r.deployment.Name)
	}
	slices.SortStableFunc(all, func(a, b liveObject) int { return strings.Compare(a.Agent, b.Agent) })
	return all, nil
}

// maxReads limits the objects of a cluster that are read at the same time.
const maxReads = 8

// readObjects reads objects from the cluster. It fails if it could read nothing.
func (t liveTarget) readObjects(ctx context.Context, objects []apiv1.Object, events bool) ([]liveObject, error) {
	out, errs := make([]liveObject, len(objects)), make([]error, len(objects))
	var group errgroup.Group
	group.SetLimit(maxReads)
	for i, o := range objects {
		group.Go(func() error {
			out[i], errs[i] = t.readObject(ctx, o, events)
			return nil
		})
	}
	_ = group.Wait()
	if len(errs) > 0 && !slices.Contains(errs, nil) {
		return nil, errs[0]
	}
	return out, ctx.Err()
}

// readObject reads an object from the cluster. With an error, the object says why it is not readable.
func (t liveTarget) readObject(ctx context.Context, o apiv1.Object, events bool) (liveObject, error) {
	found := liveObject{Agent: t.Agent, Status: o, live: livePresent}
	var err error
	if found.Object, err = t.Object(ctx, o); client.Status(err) == http.StatusNotFound {
		found.live, err = liveNotFound, nil
	} else if err != nil {
		found.live, found.Error = liveUnreadable, err.Error()
	}
	if events {
		found.events, found.noEvents = t.eventsAbout(ctx, o)
	}
	return found, err
}

// namesObject reports whether a user means an object: KIND/NAME, KIND.GROUP/NAME, with a namespace before the name.
func namesObject(text string, o apiv1.Object) bool {
	parts := strings.Split(text, "/")
	if len(parts) < 2 || len(parts) > 3 || parts[len(parts)-1] != o.Name || (len(parts) == 3 && parts[1] != o.Namespace) {
		return false
	}
	kind, group, grouped := strings.Cut(strings.ToLower(parts[0]), ".")
	name := strings.ToLower(o.Kind)
	return (kind == name || kind == name+"s") && (!grouped || group == strings.ToLower(o.Group))
}

// describeObjectCommand makes kedge describe object.
func (a *app) describeObjectCommand() *cobra.Command {
	var agents []string
	cmd := &cobra.Command{
		Use: "object DEPLOYMENT KIND/NAME…", Aliases: []string{"objects", "obj"}, Short: "Show objects of a deployment as they are in its clusters now, with their Events",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: completeFirst(completeNames(a, deploymentResource())),
		Long:    "Shows objects of a deployment as they are in its clusters now, with the Events of Kubernetes about them.\n\n" + objectHelp,
		Example: "kedge describe object web Deployment/web\nkedge describe object web Secret/key --agent prod-1",
		RunE: func(cmd *cobra.Command, args []string) error {
			objects, err := a.liveObjects(cmd.Context(), args, agents, true)
			for i, o := range objects {
				if i > 0 {
					fmt.Fprintln(a.Out)
				}
				if err := a.describeObject(o); err != nil {
					return err
				}
			}
			return err
		},
	}
	agentsFlag(cmd.Flags(), &agents)
	return cmd
}

func (a *app) describeObject(o liveObject) error {
	w := newDescriber(a.Out)
	w.field(0, "Agent", o.Agent)
	w.field(0, "Object", objectName(o.Status))
	w.field(0, "Sync", o.Status.Sync)
	w.field(0, "Health", o.Status.Health)
	w.optional(0, "Message", o.Status.Message)
	w.field(0, "Live", o.live)
	w.optional(0, "Error", o.Error)
	if err := w.Flush(); err != nil {
		return err
	}
	if o.Object != nil {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return fmt.Errorf("encoding %s: %w", objectName(o.Status), err)
		}
		fmt.Fprintf(a.Out, "Manifest:\n  %s\n", strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
	}
	if o.noEvents != nil {
		fmt.Fprintf(a.Err, "Warning: the Events about %s in the cluster of agent %s cannot be read: %v\n", objectName(o.Status), o.Agent, o.noEvents)
		return nil
	}
	var rows [][]string
	for _, e := range o.events {
		rows = append(rows, []string{e.Type, e.Reason, output.Age(e.At, a.Now()), strconv.Itoa(e.Count), e.Message})
	}
	w.table("Events", []string{"Type", "Reason", "Age", "Count", "Message"}, rows)
	return w.Flush()
}
