package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// silence is how long a stream may say nothing before it is taken for dead: the server writes a
// comment every 20 s.
const silence = 65 * time.Second

// Notice is what a feed tells: that it is (again) open or has lost records, and so everything has
// to be read again, or that one thing has changed.
type Notice struct {
	Reread bool
	Change apiv1.Change // zero when Reread is set
}

// Follow calls fn with what happens until ctx ends, fn fails or the server refuses. It opens the
// stream again when it breaks, and goes on after the last change that it saw.
func (c *Client) Follow(ctx context.Context, fn func(Notice) error) error {
	f := &feed{client: c, fn: fn, after: -1}
	pause := c.cfg.RetryMin
	for {
		opened, err := f.once(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var final *finalError
		if errors.As(err, &final) {
			return final.err
		}
		if opened {
			pause = c.cfg.RetryMin
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, c.cfg.RetryMax)
	}
}

// finalError ends a feed; any other is a reason to open it again.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }

type feed struct {
	client *Client
	fn     func(Notice) error
	after  int64
}

// once follows one stream to its end and says whether it was opened.
func (f *feed) once(ctx context.Context) (opened bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := f.open(ctx)
	if err != nil {
		return false, err
	}
	defer body.Close()
	dead := time.AfterFunc(silence, cancel)
	defer dead.Stop()
	if err := f.tell(Notice{Reread: true}); err != nil {
		return true, err
	}
	lines := bufio.NewReader(body)
	var e event
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return true, err
		}
		dead.Reset(silence)
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			e.add(line)
			continue
		}
		if err := f.dispatch(e); err != nil {
			return true, err
		}
		e = event{}
	}
}

func (f *feed) open(ctx context.Context) (io.ReadCloser, error) {
	r, err := f.client.request(ctx, http.MethodGet, f.client.In("stream"), nil, nil)
	if err != nil {
		return nil, &finalError{err}
	}
	if f.after >= 0 {
		r.Header.Set("Last-Event-ID", strconv.FormatInt(f.after, 10))
	}
	resp, err := f.client.http.Do(r)
	if err != nil {
		return nil, f.client.unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what there is of it is enough
	err = statusError(resp.StatusCode, text)
	if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
		return nil, &finalError{err}
	}
	return nil, err
}

func (f *feed) dispatch(e event) error {
	switch e.name {
	case "reset":
		f.after = -1
		return f.tell(Notice{Reread: true})
	case "change":
		var change apiv1.Change
		if err := json.Unmarshal(e.data, &change); err != nil {
			return fmt.Errorf("reading a change: %w", err)
		}
		f.after = change.Seq
		return f.tell(Notice{Change: change})
	default:
		return nil // a comment, or an event of a newer server
	}
}

func (f *feed) tell(n Notice) error {
	if err := f.fn(n); err != nil {
		return &finalError{err}
	}
	return nil
}

// event is one Server-Sent Event while it is being read.
type event struct {
	name string
	data []byte
}

func (e *event) add(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "event":
		e.name = string(value)
	case "data":
		e.data = append(e.data, value...)
	}
}
