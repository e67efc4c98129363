package main

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// across sends data over a line from the server to the client and returns how long it took to arrive.
func across(t *testing.T, l line, size int, cut time.Duration) (took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		client, near := net.Pipe()
		far, server := net.Pipe()
		s := &shaper{line: l, mended: make(chan struct{}), open: map[*cable]bool{}}
		if cut == 0 {
			close(s.mended)
		} else {
			time.AfterFunc(cut, func() { s.mend(l) })
		}
		s.join(near, far)
		started := time.Now()
		go func() {
			_, _ = server.Write(make([]byte, size))
			_ = server.Close()
		}()
		n, err := io.Copy(io.Discard, client)
		if err != nil || n != int64(size) {
			t.Errorf("got %d of %d bytes, error %v", n, size, err)
		}
		took = time.Since(started)
		_ = client.Close()
		s.all.Wait()
	})
	return took
}

func TestLineTakesTheTimeThatItShould(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason   string
		line     line
		size     int
		cut      time.Duration
		min, max time.Duration
	}{
		{reason: "a perfect line costs nothing", size: 1 << 20},
		{reason: "half a round trip one way", line: line{rtt: time.Second}, size: 100, min: 500 * time.Millisecond, max: 500 * time.Millisecond},
		{reason: "32 kB at 32 kB/s", line: line{rate: 32_000}, size: 32_000, min: time.Second, max: time.Second + time.Millisecond},
		{reason: "everything is lost once", line: line{rtt: time.Second, loss: 1}, size: 100, min: 2 * time.Second, max: 2 * time.Second},
		{reason: "nothing passes while it is cut", size: 100, cut: time.Minute, min: time.Minute, max: time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			if took := across(t, tt.line, tt.size, tt.cut); took < tt.min || took > tt.max {
				t.Errorf("it took %v, want %v to %v", took, tt.min, tt.max)
			}
		})
	}
}
