package gitserver

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSH serves the repositories of a server over SSH. Its methods are safe for concurrent use.
type SSH struct {
	server   *Server
	listener net.Listener
	hostKey  ssh.Signer
	ctx      context.Context // ends with the server
	work     sync.WaitGroup

	mu         sync.Mutex
	authorized [][]byte
	readOnly   bool
	conns      map[net.Conn]bool
}

// ServeSSH serves over SSH on a free port of 127.0.0.1, until the server is closed. It refuses all clients
// before Authorize.
func (s *Server) ServeSSH() (*SSH, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	signer, err := ssh.NewSignerFromSigner(key)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &SSH{server: s, listener: listener, hostKey: signer, ctx: ctx, conns: map[net.Conn]bool{}}
	h.work.Go(h.accept)
	s.onClose(func() error {
		cancel()
		err := listener.Close()
		h.closeConns()
		h.work.Wait()
		return err
	})
	return h, nil
}

// URL returns the address of a repository over SSH.
func (h *SSH) URL(repo string) string {
	return "ssh://git@" + h.listener.Addr().String() + "/" + repo + ".git"
}

// KnownHosts returns the host key in the format of OpenSSH's known_hosts.
func (h *SSH) KnownHosts() []byte {
	return []byte(knownhosts.Line([]string{h.listener.Addr().String()}, h.hostKey.PublicKey()) + "\n")
}

// Authorize sets the keys that may read.
func (h *SSH) Authorize(keys ...ssh.PublicKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.authorized = nil
	for _, key := range keys {
		h.authorized = append(h.authorized, key.Marshal())
	}
}

// SetReadOnly makes keys read-only, like deploy keys.
func (h *SSH) SetReadOnly(readOnly bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readOnly = readOnly
}

// NewKey returns a private key in PEM and its public key.
func NewKey() ([]byte, ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	key, err := ssh.NewPublicKey(public)
	return pem.EncodeToMemory(block), key, err
}

func (h *SSH) accept() {
	for {
		conn, err := h.listener.Accept()
		if err != nil {
			return // closed
		}
		h.work.Go(func() { h.serve(conn) })
	}
}

// track records a connection for the end of the server, and reports whether the server is still open.
func (h *SSH) track(conn net.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[conn] = true
	return h.ctx.Err() == nil
}

func (h *SSH) untrack(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, conn)
}

func (h *SSH) closeConns() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for conn := range h.conns {
		_ = conn.Close() // both ends notice it
	}
}

func (h *SSH) checkKey(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, known := range h.authorized {
		if bytes.Equal(known, key.Marshal()) {
			return nil, nil
		}
	}
	return nil, errors.New("unknown key")
}

func (h *SSH) serve(conn net.Conn) {
	defer conn.Close()
	if !h.track(conn) {
		return
	}
	defer h.untrack(conn)
	config := &ssh.ServerConfig{PublicKeyCallback: h.checkKey}
	config.AddHostKey(h.hostKey)
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // the client knows
	}
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		if offered.ChannelType() != "session" {
			_ = offered.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		h.work.Go(func() { h.session(channel, requests) })
	}
}

// session runs the only command of a session.
func (h *SSH) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = channel.Close() }() // the client may have been first
	var env []string
	for r := range requests {
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			ok := ssh.Unmarshal(r.Payload, &v) == nil && v.Name == "GIT_PROTOCOL"
			if ok {
				env = append(env, v.Name+"="+v.Value)
			}
			_ = r.Reply(ok, nil)
		case "exec":
			var v struct{ Command string }
			err := ssh.Unmarshal(r.Payload, &v)
			_ = r.Reply(err == nil, nil)
			if err == nil {
				go ssh.DiscardRequests(requests)
				status := struct{ Status uint32 }{h.serveCommand(channel, v.Command, env)}
				_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
			}
			return
		default:
			_ = r.Reply(false, nil)
		}
	}
}

// serveCommand behaves like large hosts: it writes errors as text to the standard error.
func (h *SSH) serveCommand(channel ssh.Channel, command string, env []string) uint32 {
	service, path, _ := strings.Cut(command, " ")
	dir := filepath.Join(h.server.dir, filepath.Clean("/"+strings.Trim(path, "'")))
	h.mu.Lock()
	readOnly := h.readOnly
	h.mu.Unlock()
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err != nil || (service != "git-upload-pack" && service != "git-receive-pack") {
		_, _ = channel.Stderr().Write([]byte("ERROR: Repository not found.\n"))
		return 1
	}
	if readOnly && service == "git-receive-pack" {
		_, _ = channel.Stderr().Write([]byte("ERROR: The key you are authenticating with has been marked as read only.\n"))
		return 1
	}
	cmd := exec.CommandContext(h.ctx, "git", strings.TrimPrefix(service, "git-"), dir)
	cmd.Env = append(os.Environ(), append(env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")...)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	stdin, err := cmd.StdinPipe() // closed when git has ended, so that an idle client does not block it
	if err != nil || cmd.Start() != nil {
		return 1
	}
	go func() {
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	}()
	if cmd.Wait() != nil {
		return 128
	}
	return 0
}
