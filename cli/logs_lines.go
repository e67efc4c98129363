package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kedge-dev/kedge/cli/internal/client"
	"github.com/kedge-dev/kedge/cli/internal/cluster"
	"github.com/kedge-dev/kedge/internal/plaintext"
)

// maxLine limits one line of a log.
const maxLine = 64 << 10

// containerLog is the log of one container.
type containerLog struct {
	in        *cluster.Cluster
	pod       cluster.Pod
	container string
	restarts  int
	prefix    string
	key       string // differs after a restart of the container
	whole     bool   // it began later than the command, so that --tail does not apply
}

// logLine is a line of a log.
type logLine struct {
	at   time.Time // zero if the log does not say it
	text string
}

// read calls each for the lines of a log that are newer than since.
func (l *logReader) read(ctx context.Context, log containerLog, since time.Time, each func(logLine)) error {
	options := maps.Clone(l.options)
	if log.whole || !since.IsZero() {
		options.Del("tailLines")
	}
	if !since.IsZero() {
		options.Set("sinceTime", since.UTC().Format(time.RFC3339)) // API servers know seconds only
	}
	body, err := log.in.Log(ctx, log.pod, log.container, options)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReaderSize(body, maxLine)
	for {
		text, err := readLine(lines)
		if err != nil && !errors.Is(err, io.EOF) {
			return err // the rest of the line comes after the interruption
		}
		if line := parseLine(text); text != "" && (line.at.IsZero() || line.at.After(since)) {
			each(line)
		}
		if err != nil {
			return nil
		}
	}
}

// readLine reads a line with its end. It drops what is longer than the buffer.
func readLine(r *bufio.Reader) (string, error) {
	slice, err := r.ReadSlice('\n')
	text := string(slice)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = r.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			text += plaintext.Ellipsis
		}
	}
	return text, err
}

// parseLine takes the time from a line.
func parseLine(text string) logLine {
	text = strings.TrimRight(text, "\r\n")
	stamp, rest, _ := strings.Cut(text, " ")
	if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		return logLine{at, rest}
	}
	return logLine{text: text}
}

// escapes are the control sequences by which programs color their logs.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// printLine prints a line of a log, if it is wanted.
func (l *logReader) printLine(log containerLog, line logLine) {
	// A log may contain anything. It must not control the terminal.
	text := plaintext.Text(escapes.ReplaceAllString(line.text, ""), 0)
	if !l.match.MatchString(text) {
		return
	}
	if l.timestamps && !line.at.IsZero() {
		text = line.at.UTC().Format(time.RFC3339Nano) + " " + text
	}
	l.printing.Lock()
	defer l.printing.Unlock()
	fmt.Fprintf(l.app.Out, "%s%s\n", log.prefix, text)
}

// merge prints logs together, by the time of their lines. It returns how many could be read.
func (l *logReader) merge(ctx context.Context, logs []containerLog) int {
	var read atomic.Int64
	lines := make([]chan logLine, len(logs))
	for i, log := range logs {
		lines[i] = make(chan logLine, 64)
		l.running.Go(func() {
			defer close(lines[i])
			err := l.read(ctx, log, time.Time{}, func(line logLine) {
				select {
				case lines[i] <- line:
				case <-ctx.Done():
				}
			})
			if err == nil {
				read.Add(1)
			} else if ctx.Err() == nil {
				l.warn("agent %s, pod %s: the log of container %s cannot be read: %v", log.in.Agent, log.pod.Metadata.Name, log.container, err)
			}
		})
	}
	l.printMerged(logs, lines)
	l.running.Wait()
	return int(read.Load())
}

// printMerged prints lines until all channels are closed.
func (l *logReader) printMerged(logs []containerLog, lines []chan logLine) {
	next := make([]*logLine, len(lines))
	receive := func(i int) {
		next[i] = nil
		if line, ok := <-lines[i]; ok {
			next[i] = &line
		}
	}
	for i := range lines {
		receive(i)
	}
	for {
		oldest := -1
		for i, line := range next {
			if line != nil && (oldest < 0 || line.at.Before(next[oldest].at)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return
		}
		l.printLine(logs[oldest], *next[oldest])
		receive(oldest)
	}
}

const (
	resumeMin = 500 * time.Millisecond
	resumeMax = 10 * time.Second
)

// followLog prints a log until its container ends. It continues after a connection that broke or ended.
func (l *logReader) followLog(ctx context.Context, log containerLog) {
	var last time.Time
	for pause, lost := resumeMin, false; ; pause = min(2*pause, resumeMax) {
		err := l.read(ctx, log, last, func(line logLine) {
			if line.at.After(last) {
				last = line.at
			}
			pause, lost = resumeMin, false
			l.printLine(log, line)
		})
		ended := false
		if err == nil { // a kubelet that restarts ends a log like one that is complete
			var runs bool
			runs, err = log.in.Runs(ctx, log.pod, log.container, log.restarts)
			ended = err == nil && !runs || client.Status(err) == http.StatusNotFound
		}
		switch {
		case ended || ctx.Err() != nil:
			return
		case err == nil: // it continues
		case cluster.Refused(err):
			l.warn("agent %s, pod %s: the log of container %s cannot be read: %v", log.in.Agent, log.pod.Metadata.Name, log.container, err)
			return
		case !lost:
			lost = true
			l.warn("agent %s, pod %s: the log of container %s is interrupted, retrying: %v", log.in.Agent, log.pod.Metadata.Name, log.container, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
