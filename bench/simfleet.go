package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kedge-dev/kedge/internal/rig"
)

const (
	// agentsPerProcess keeps a process of simulated agents well below the limit of descriptors.
	agentsPerProcess = 5000
	// fleetPatience limits every wait for the fleet.
	fleetPatience = 10 * time.Minute
)

// simFleet is a set of processes of simulated agents, with their output. It is safe for concurrent use.
type simFleet struct {
	n     int
	procs []*rig.Process

	mu    sync.Mutex
	told  chan struct{} // closed and replaced whenever something was told
	links []linkState   // by process
	bytes []linkBytes   // by process
	// history has the received bundles, oldest first, by agent and target.
	history map[holder][]holding
	holders map[string]int // number of targets with a digest now
}

type holder struct{ agent, target string }

type holding struct {
	digest string
	at     time.Time
}

type linkState struct {
	connected, connects int
	at                  time.Time
}

type linkBytes struct {
	received, sent, sockets int64
	answers                 int
}

// simulate starts an agent for every token in dirs, one process per folder. With quiet they do not print
// applied bundles.
func (r *rigging) simulate(ctx context.Context, address, caFile string, n int, dirs []string, extra ...string) (*simFleet, error) {
	f := &simFleet{
		n: n, told: make(chan struct{}), links: make([]linkState, len(dirs)), bytes: make([]linkBytes, len(dirs)),
		history: map[holder][]holding{}, holders: map[string]int{},
	}
	for i, dir := range dirs {
		args := append([]string{"--server-address", address, "--token-dir", dir, "--ca-cert-file", caFile}, extra...)
		cmd := exec.CommandContext(context.WithoutCancel(ctx), r.program("simagents"), args...)
		out, in := io.Pipe()
		cmd.Stdout = in
		p, err := rig.Start("simagents", cmd, os.Stderr)
		if err != nil {
			return nil, err
		}
		f.procs = append(f.procs, p)
		r.closers = append(r.closers, p.Stop)
		go f.read(i, out)
	}
	return f, f.await(ctx, func() bool { connected, _, _ := f.linksLocked(); return connected == n })
}

func (f *simFleet) stop() {
	for _, p := range f.procs {
		_ = p.Stop()
	}
}

// read parses the output of one process.
func (f *simFleet) read(process int, out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 4 && len(fields) != 5 {
			continue
		}
		nanos, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			continue
		}
		f.mu.Lock()
		f.takeLocked(process, fields, time.Unix(0, nanos))
		close(f.told)
		f.told = make(chan struct{})
		f.mu.Unlock()
	}
}

func (f *simFleet) takeLocked(process int, fields []string, at time.Time) {
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64) // simagents wrote it
		return n
	}
	switch fields[0] {
	case "connected":
		f.links[process] = linkState{connected: int(number(1)), connects: int(number(2)), at: at}
	case "bytes":
		before := f.bytes[process].answers
		f.bytes[process] = linkBytes{received: number(1), sent: number(2), sockets: number(3), answers: before + 1}
	case "applied":
		h := holder{agent: fields[1], target: fields[2]}
		if past := f.history[h]; len(past) > 0 {
			f.holders[past[len(past)-1].digest]--
		}
		f.history[h] = append(f.history[h], holding{digest: fields[3], at: at})
		f.holders[fields[3]]++
	}
}

// await waits until ok returns true. ok is called with the lock held.
func (f *simFleet) await(ctx context.Context, ok func() bool) error {
	late := time.NewTimer(fleetPatience)
	defer late.Stop()
	for {
		f.mu.Lock()
		done, told := ok(), f.told
		f.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-told:
		case <-f.procs[0].Done():
			return f.procs[0].Ended()
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return errors.New("the simulated fleet did not get there in " + fleetPatience.String())
		}
	}
}

// linksLocked sums up the processes: connected agents, connections so far, and the time of the last change.
func (f *simFleet) linksLocked() (connected, connects int, at time.Time) {
	for _, l := range f.links {
		connected, connects = connected+l.connected, connects+l.connects
		if l.at.After(at) {
			at = l.at
		}
	}
	return connected, connects, at
}

// connects is how many connections there were so far.
func (f *simFleet) connects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, n, _ := f.linksLocked()
	return n
}

// awaitLinks waits until all agents are connected, with that many connections in total, and returns when.
func (f *simFleet) awaitLinks(ctx context.Context, connects int) (at time.Time, err error) {
	err = f.await(ctx, func() bool {
		connected, total, when := f.linksLocked()
		at = when
		return connected == f.n && total >= connects
	})
	return at, err
}

// awaitHolders waits until n targets have a digest, and returns when the last one got it.
func (f *simFleet) awaitHolders(ctx context.Context, digest string, n int) (last time.Time, err error) {
	err = f.await(ctx, func() bool { return f.holders[digest] >= n })
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, past := range f.history {
		if now := past[len(past)-1]; now.digest == digest && now.at.After(last) {
			last = now.at
		}
	}
	return last, err
}

// holding returns the number of targets with a digest now.
func (f *simFleet) holding(digest string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holders[digest]
}

// traffic returns the traffic of the open connections, in both directions.
func (f *simFleet) traffic(ctx context.Context) (bytes int64, err error) {
	f.mu.Lock()
	before := make([]int, len(f.bytes))
	for i, b := range f.bytes {
		before[i] = b.answers
	}
	f.mu.Unlock()
	for _, p := range f.procs {
		p.Signal(syscall.SIGUSR1)
	}
	err = f.await(ctx, func() bool {
		bytes = 0
		for i, b := range f.bytes {
			if b.answers == before[i] {
				return false
			}
			bytes += b.received + b.sent
		}
		return true
	})
	return bytes, err
}

// tokenDirs creates folders for the tokens of n agents, and returns the path of each.
func (r *rigging) tokenDirs(n int) (dirs []string, file func(i int, agent string) string, err error) {
	for range (n + agentsPerProcess - 1) / agentsPerProcess {
		dir, err := r.subdir("tokens-")
		if err != nil {
			return nil, nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, func(i int, agent string) string { return filepath.Join(dirs[i/agentsPerProcess], agent) }, nil
}

func agentName(i int) string { return fmt.Sprintf("agent-%05d", i) }
