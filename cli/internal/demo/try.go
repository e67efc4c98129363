package demo

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// try is something that a person is told to do: command lines as they are printed. With Once the
// demo runs exactly these lines, so that none can be printed that does not work.
type try struct {
	title string
	do    []string
	look  string // shows the result, after a moment
	want  string // what it shows then
	hint  string // another line worth typing; may be empty
}

func (d *demo) tries() []try {
	k := d.clusters[0].Kubectl + " -n " + namespace + " "
	return []try{
		{
			title: "Push a change and see it arrive in every cluster",
			do: []string{fmt.Sprintf("cd %s && sed -i 's/Hello/Good morning/' app/page.yaml && git commit -qam greet && git push -q",
				d.repo.work)},
			look: k + "get configmap page -o yaml", want: "Good morning",
			hint: d.kedge + " status " + deployment,
		},
		{
			title: "Edit an object by hand and watch it heal",
			do:    []string{k + "scale deployment web --replicas=5"},
			look:  k + "get deployment web", want: "2/2",
			hint: d.kedge + " get events --deployment " + deployment,
		},
		{
			title: "Stop the server and see the agents go on healing",
			do:    []string{fmt.Sprintf("kill %d", d.server.PID()), k + "delete service web"},
			look:  k + "get service web", want: "ClusterIP",
		},
	}
}

// lines are what is printed.
func (t try) lines() []string {
	all := append(append([]string{}, t.do...), t.look)
	if t.hint != "" {
		all = append(all, t.hint)
	}
	return all
}

// run does what the lines say and waits for what they should lead to.
func (t try) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, line := range t.do {
		if _, err := shell(ctx, line); err != nil {
			return err
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := shell(ctx, t.look)
		if err == nil && strings.Contains(out, t.want) {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s never shows %q: %w\n%s", t.look, t.want, errors.Join(ctx.Err(), err), out)
		case <-tick.C:
		}
	}
	if t.hint == "" {
		return nil
	}
	_, err := shell(ctx, t.hint)
	return err
}

// shell runs a line as a person's shell would.
func shell(ctx context.Context, line string) (string, error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("running %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
