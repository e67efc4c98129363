package gitserver

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxCommands limits the part of a push that is kept to determine the changed refs.
const maxCommands = 1 << 20

// commandReader forwards a push and keeps its start, which has the commands.
type commandReader struct {
	body io.ReadCloser
	head bytes.Buffer
}

func (c *commandReader) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if free := maxCommands - c.head.Len(); free > 0 {
		c.head.Write(p[:min(n, free)])
	}
	return n, err
}

func (c *commandReader) Close() error { return c.body.Close() }

type command struct{ ref, commit string }

// commands parses the lines "old new ref", each with its length in hex before it, up to the first empty one.
func (c *commandReader) commands() []command {
	var out []command
	for data := c.head.Bytes(); len(data) >= 4; {
		length, err := strconv.ParseUint(string(data[:4]), 16, 16)
		if err != nil || length < 4 || int(length) > len(data) {
			break
		}
		line, _, _ := strings.Cut(string(data[4:length]), "\x00")
		data = data[length:]
		fields := strings.Fields(line)
		if len(fields) == 3 && len(fields[0]) == 40 && len(fields[1]) == 40 {
			out = append(out, command{ref: fields[2], commit: strings.Trim(fields[1], "0")})
			if out[len(out)-1].commit != "" {
				out[len(out)-1].commit = fields[1]
			}
		}
	}
	return out
}

// announce calls OnPush for the commands that were executed.
func (s *Server) announce(repo string, commands []command) {
	f := s.onPush.Load()
	if f == nil {
		return
	}
	for _, c := range commands {
		// receive-pack writes refs as files; a refused push does not change them.
		data, err := os.ReadFile(filepath.Join(s.Dir(repo), filepath.FromSlash(c.ref)))
		done := err == nil && strings.TrimSpace(string(data)) == c.commit
		if c.commit == "" {
			done = os.IsNotExist(err)
		}
		if done {
			s.pushes.Go(func() { (*f)(repo, c.ref, c.commit) })
		}
	}
}
