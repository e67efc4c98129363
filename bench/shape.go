package main

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// segment is how much TCP puts into one packet.
const segment = 1400

// line is how bad a line is.
type line struct {
	rtt  time.Duration
	loss float64 // of the packets
	rate float64 // bytes per second, each way
}

// shaper simulates a bad line between agents and a server: packets have latency, the line has a rate limit, and
// a lost packet arrives a round trip and a half later, with everything after it, as TCP delivers in order. It
// can be cut: then nothing passes, without an error. The kernel would do this better (tc netem), if available.
type shaper struct {
	listener net.Listener
	server   string
	all      sync.WaitGroup

	mu     sync.Mutex
	line   line
	mended chan struct{} // closed while the line is not cut
	open   map[*cable]bool
	free   [2]time.Time // when the line can take the next packet, by direction
	passed int64        // bytes to clients since the last mend
}

// cable is one connection: the client's end and the server's.
type cable struct {
	ends   [2]net.Conn
	first  time.Time // when the first byte after the last mend set off
	passed int64     // bytes to the client since then
}

// The directions.
const (
	up   = 0 // to the server
	down = 1
)

func newShaper(server string, l line) (*shaper, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &shaper{listener: listener, server: server, line: l, mended: make(chan struct{}), open: map[*cable]bool{}}
	close(s.mended)
	s.all.Go(s.accept)
	return s, nil
}

func (s *shaper) address() string { return s.listener.Addr().String() }

func (s *shaper) close() error {
	err := s.listener.Close()
	s.mend(line{}) // so that nobody waits
	s.mu.Lock()
	for c := range s.open {
		c.close()
	}
	s.mu.Unlock()
	s.all.Wait()
	return err
}

// cut stops everything.
func (s *shaper) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mended = make(chan struct{})
}

// mend lets packets pass again, over a line with these properties.
func (s *shaper) mend(l line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line, s.passed = l, 0
	for c := range s.open {
		c.first, c.passed = time.Time{}, 0
	}
	select {
	case <-s.mended:
	default:
		close(s.mended)
	}
}

// since returns how many bytes have gone to clients since the last mend, and when the connection with most of
// them was used again first.
func (s *shaper) since() (bytes int64, first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := int64(-1)
	for c := range s.open {
		if c.passed > most {
			most, first = c.passed, c.first
		}
	}
	return s.passed, first
}

func (s *shaper) accept() {
	for {
		in, err := s.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", s.server) //nolint:noctx // on this machine: it answers or refuses at once
		if err != nil {
			_ = in.Close()
			continue
		}
		s.join(in, out)
	}
}

// join forwards both directions between a client and a server.
func (s *shaper) join(client, server net.Conn) {
	c := &cable{ends: [2]net.Conn{up: server, down: client}}
	s.mu.Lock()
	s.open[c] = true
	s.mu.Unlock()
	s.all.Go(func() { s.carry(c, up) })
	s.all.Go(func() { s.carry(c, down) })
}

// packet is data on its way.
type packet struct {
	data   []byte
	arrive time.Time
}

// carry forwards one direction of a connection until either end is closed. The other end notices that with the
// same delay.
func (s *shaper) carry(c *cable, direction int) {
	from, to := c.ends[1-direction], c.ends[direction]
	way := make(chan packet, 1024)
	s.all.Go(func() {
		for p := range way {
			wait(time.Until(p.arrive))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close() // ends the loop below
			}
		}
		s.forget(c)
	})
	defer close(way)
	var last time.Time
	buffer := make([]byte, segment)
	for opening := true; ; opening = false {
		n, err := from.Read(buffer)
		s.passable()
		if n > 0 {
			p := s.send(c, direction, buffer[:n], opening && direction == up)
			if p.arrive.Before(last) {
				p.arrive = last
			}
			last = p.arrive
			way <- p
		}
		if err != nil {
			return
		}
	}
}

// passable waits while the line is cut.
func (s *shaper) passable() {
	s.mu.Lock()
	mended := s.mended
	s.mu.Unlock()
	<-mended
}

// send sends a packet and returns when the line can accept the next one. Opening a connection takes a round
// trip first.
func (s *shaper) send(c *cable, direction int, data []byte, opening bool) packet {
	s.mu.Lock()
	now := time.Now()
	leaves := now
	if s.free[direction].After(now) {
		leaves = s.free[direction]
	}
	if s.line.rate > 0 {
		leaves = leaves.Add(time.Duration(float64(len(data)) / s.line.rate * float64(time.Second)))
	}
	s.free[direction] = leaves
	arrive := leaves.Add(s.line.rtt / 2)
	if opening {
		arrive = arrive.Add(s.line.rtt)
	}
	if rand.Float64() < s.line.loss {
		arrive = arrive.Add(s.line.rtt * 3 / 2)
	}
	if c.first.IsZero() {
		c.first = now
	}
	if direction == down {
		c.passed += int64(len(data))
		s.passed += int64(len(data))
	}
	s.mu.Unlock()
	wait(time.Until(leaves))
	return packet{data: slices.Clone(data), arrive: arrive}
}

func (s *shaper) forget(c *cable) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.close()
	delete(s.open, c)
}

func (c *cable) close() {
	for _, end := range c.ends {
		_ = end.Close()
	}
}

func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}
