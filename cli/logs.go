package cli

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/cluster"
)

// maxLogs limits the logs that are open at the same time. The server limits the open requests of a caller to 100.
const maxLogs = 64

// logFlags are the flags of kedge logs.
type logFlags struct {
	agents                       []string
	container, since, grep       string
	follow, previous, timestamps bool
	tail                         int
	colour                       string
}

func (a *app) logsCommand() *cobra.Command {
	var flags logFlags
	cmd := a.verb("logs DEPLOYMENT", "Print the logs of all pods of a deployment, in all its clusters", 1, func(ctx context.Context, c *client.Client, args []string) error {
		l, err := newLogReader(a, flags)
		if err != nil {
			return err
		}
		if l.clusterReader, err = a.clustersOf(ctx, c, args[0], flags.agents); err != nil {
			return err
		}
		return l.run(ctx)
	})
	cmd.Long = "Prints the logs of all pods of a deployment in all its clusters, by time. Each line starts with the agent, the pod and, if the pod has\n" +
		"several, the container. --follow continues with new lines and new pods as they come.\n\n" +
		"Logs are read through the tunnels of the agents with your own rights: you need an access rule (kedge access), and permission in the\n" +
		"cluster to get and list pods, to list ReplicaSets, and to get logs. A cluster that cannot be read is named, and the others are printed."
	cmd.Example = "kedge logs web --since 10m\nkedge logs web --follow --agent prod-1 --grep 'error|timeout'"
	f := cmd.Flags()
	agentsFlag(f, &flags.agents)
	f.StringVarP(&flags.container, "container", "c", "", "only containers with this name")
	f.BoolVarP(&flags.follow, "follow", "f", false, "print new lines, also of new pods, until you interrupt it")
	f.BoolVarP(&flags.previous, "previous", "p", false, "print the logs of the containers before their last restart")
	f.BoolVar(&flags.timestamps, "timestamps", false, "print the time of each line")
	f.StringVar(&flags.since, "since", "", "only lines after this: a duration such as 10m, or a time (RFC 3339)")
	f.IntVar(&flags.tail, "tail", -1, "only this many of the last lines of each container; -1 prints all")
	f.StringVar(&flags.grep, "grep", "", "only lines that match this regular expression")
	f.StringVar(&flags.colour, "color", "auto", "color agents and pods: auto, always, or never")
	must(cmd.RegisterFlagCompletionFunc("color", fixed("auto", "always", "never")))
	cmd.MarkFlagsMutuallyExclusive("follow", "previous")
	return cmd
}

// logReader prints the logs of many containers.
type logReader struct {
	*clusterReader
	logFlags
	options url.Values // of the requests
	match   *regexp.Regexp
	colours bool

	running sync.WaitGroup // logs that are followed
	mu      sync.Mutex
	started map[string]bool // containers, see containerLog.key
	open    int             // logs that are followed
	tooMany bool            // the user knows that some logs are not followed
}

func newLogReader(a *app, flags logFlags) (*logReader, error) {
	// The times of lines sort them, and say where to continue after a broken connection.
	l := &logReader{logFlags: flags, options: url.Values{"timestamps": {"true"}}, started: map[string]bool{}}
	usage := func(format string, args ...any) error {
		return &exitError{exitUsage, fmt.Sprintf(format, args...), "kedge logs --help"}
	}
	switch flags.colour {
	case "auto":
		l.colours = a.colour()
	case "always", "never":
		l.colours = flags.colour == "always"
	default:
		return nil, usage("--color must be auto, always, or never, not %q", flags.colour)
	}
	for name, on := range map[string]bool{"follow": flags.follow, "previous": flags.previous} {
		if on {
			l.options.Set(name, "true")
		}
	}
	if flags.since != "" {
		at, err := moment(flags.since, a.Now())
		if err != nil {
			return nil, usage("--since %v", err)
		}
		l.options.Set("sinceTime", at.UTC().Format(time.RFC3339))
	}
	if flags.tail >= 0 {
		l.options.Set("tailLines", strconv.Itoa(flags.tail))
	}
	var err error
	if l.match, err = regexp.Compile(flags.grep); err != nil {
		return nil, usage("--grep is not a regular expression: %v", err)
	}
	return l, nil
}

// run prints the logs.
func (l *logReader) run(ctx context.Context) error {
	if l.follow {
		return l.followAll(ctx)
	}
	var mu sync.Mutex
	var all []containerLog
	err := l.each(ctx, func(ctx context.Context, t liveTarget) error {
		for _, namespace := range cluster.PodNamespaces(t.objects) {
			pods, err := t.Pods(ctx, namespace, t.owners)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, p := range pods {
				all = append(all, l.logsOf(t.Cluster, p)...)
			}
			mu.Unlock()
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(all) == 0 && l.previous:
		return failure(fmt.Sprintf("no container of deployment %q has restarted in the clusters of %s", l.deployment.Name, l.agentNames()), "leave out --previous")
	case len(all) == 0:
		return failure(fmt.Sprintf("deployment %q has no pod with a log in the clusters of %s", l.deployment.Name, l.agentNames()), "kedge tree "+l.deployment.Name)
	}
	slices.SortFunc(all, func(a, b containerLog) int { return strings.Compare(a.key, b.key) })
	if len(all) > maxLogs {
		l.warn("there are %d logs; they are printed in groups of %d, each by time", len(all), maxLogs)
	}
	read := 0
	for group := range slices.Chunk(all, maxLogs) {
		read += l.merge(ctx, group)
	}
	if read == 0 && ctx.Err() == nil {
		return failure("no log could be read", accessHelp)
	}
	return ctx.Err()
}

// logsOf are the logs of a pod.
func (l *logReader) logsOf(in *cluster.Cluster, p cluster.Pod) []containerLog {
	containers := p.Containers()
	var out []containerLog
	for _, c := range containers {
		if !c.HasLog(l.previous) || (l.container != "" && l.container != c.Name) {
			continue
		}
		out = append(out, containerLog{
			in: in, pod: p, container: c.Name, restarts: c.RestartCount, prefix: l.prefix(in.Agent, p, c.Name, len(containers) > 1),
			key: fmt.Sprintf("%s/%s/%s/%s/%s/%d", in.Agent, p.Metadata.Namespace, p.Metadata.Name, p.Metadata.UID, c.Name, c.RestartCount),
		})
	}
	return out
}

// followAll prints lines as they come, until ctx ends.
func (l *logReader) followAll(ctx context.Context) error {
	var watches sync.WaitGroup
	err := l.each(ctx, func(ctx context.Context, t liveTarget) error {
		namespaces := cluster.PodNamespaces(t.objects)
		if len(namespaces) == 0 {
			return fmt.Errorf("deployment %q has no workload there", l.deployment.Name)
		}
		for _, namespace := range namespaces {
			listed := make(chan error, 1)
			watches.Go(func() { listed <- l.followPods(ctx, t, namespace, func() { listed <- nil }) })
			if err := <-listed; err != nil {
				return err
			}
		}
		return nil
	})
	watches.Wait()
	l.running.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	}
	return failure("no log is followed any more", accessHelp)
}

// followPods starts to follow the pods of a namespace. It calls ready when it has found the first ones.
func (l *logReader) followPods(ctx context.Context, t liveTarget, namespace string, ready func()) error {
	var unknown error
	began := false
	err := t.FollowPods(ctx, namespace, cluster.Follower[cluster.Pod]{
		Each: func(p cluster.Pod, first bool) {
			has, err := t.owners.HasPod(ctx, p)
			if has {
				l.start(ctx, t.Cluster, p, first)
			} else if err != nil && unknown == nil {
				unknown = err
				l.warn("agent %s: the owner of pod %s is not known: %v", t.Agent, p.Metadata.Name, err)
			}
		},
		Listed: func() { began = true; ready() },
		Lost: func(err error) {
			l.warn("agent %s: new pods are not seen until the cluster can be read again: %v", t.Agent, err)
		},
	})
	if began && ctx.Err() == nil {
		l.warn("agent %s: new pods are not followed any more: %v", t.Agent, err)
	}
	return err
}

// start follows the logs of a pod that are not followed yet.
func (l *logReader) start(ctx context.Context, in *cluster.Cluster, p cluster.Pod, first bool) {
	for _, log := range l.logsOf(in, p) {
		if !l.claim(log.key) {
			continue
		}
		log.whole = !first
		l.running.Go(func() {
			defer l.release()
			l.followLog(ctx, log)
		})
	}
}

// claim reports whether a log shall be opened.
func (l *logReader) claim(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.started[key]:
		return false
	case l.open >= maxLogs:
		if !l.tooMany {
			l.tooMany = true
			l.warn("only %d logs are followed at the same time: choose with --agent or --container", maxLogs)
		}
		return false
	}
	l.started[key] = true
	l.open++
	return true
}

func (l *logReader) release() {
	l.mu.Lock()
	l.open--
	l.mu.Unlock()
}

// prefix names the origin of a line.
func (l *logReader) prefix(agent string, p cluster.Pod, container string, several bool) string {
	text := l.paint(agent, agent) + " " + l.paint(p.Metadata.Name, agent+"/"+p.Metadata.Name)
	if several {
		text += " " + container
	}
	return text + " | "
}

// palette are the colors of origins; red and the shades of gray have other meanings.
var palette = []int{32, 33, 34, 35, 36, 92, 93, 94, 95, 96}

// paint colors a text by a key, so that the same origin always has the same color.
func (l *logReader) paint(text, key string) string {
	if !l.colours {
		return text
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", palette[h.Sum32()%uint32(len(palette))], text)
}
