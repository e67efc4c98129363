package gitsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// sshTimeout limits a connection from the first byte until the user is authenticated.
const sshTimeout = 30 * time.Second

// sshTarget is a repository on an SSH server. An SSH client in this process reads it: the key is in no file and
// no SSH agent, and the dialer checks the address like any other.
type sshTarget struct {
	host   string // with the port
	path   string
	config ssh.ClientConfig
}

func (m *Manager) sshConnector(a Access) (func(context.Context, service) (*connection, error), error) {
	target, err := newSSHTarget(a, m.cfg.Dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, s service) (*connection, error) { return target.open(ctx, m.dialer, s) }, nil
}

func newSSHTarget(a Access, tempDir string) (*sshTarget, error) {
	problem := func(format string, args ...any) error {
		return &RemoteError{Reason: fleet.ReasonCredentialUnusable, URL: a.URL, Problem: fmt.Sprintf(format, args...)}
	}
	if a.Credential == nil || len(a.Credential.SSHKey) == 0 {
		return nil, problem("ssh needs a credential with a key: store one and select it with kedge repo add %s --credential NAME", a.URL)
	}
	signer, err := ssh.ParsePrivateKey(a.Credential.SSHKey)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, problem("the SSH key has a passphrase: store a key without one")
	}
	if err != nil {
		return nil, problem("the SSH key is not a private key in PEM format")
	}
	user, host, path := sshParts(a.URL)
	known, err := readHostKeys(a.Credential.KnownHosts, host, tempDir)
	var unreadable *hostKeyError
	if errors.As(err, &unreadable) {
		return nil, problem("%s", unreadable.problem)
	}
	if err != nil {
		return nil, fmt.Errorf("reading known hosts: %w", err)
	}
	return &sshTarget{host: host, path: path, config: ssh.ClientConfig{
		User:              cmp.Or(user, a.Credential.Username, "git"),
		Auth:              []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   known.check,
		HostKeyAlgorithms: known.algorithms,
	}}, nil
}

// sshParts splits an address like git: in the form host:path the path is relative to the home folder. In a URL it
// is absolute, unless it begins with a tilde.
func sshParts(raw string) (user, host, path string) {
	if u, err := url.Parse(raw); err == nil && u.Scheme == "ssh" {
		path = u.Path
		if strings.HasPrefix(path, "/~") {
			path = path[1:]
		}
		return u.User.Username(), net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22")), path
	}
	match := scpURL.FindStringSubmatch(raw)
	return match[1], net.JoinHostPort(strings.Trim(match[2], "[]"), "22"), match[3]
}

type contextDialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// open connects and starts the service. After an error the connection is closed and contains the fault.
func (t *sshTarget) open(ctx context.Context, dialer contextDialer, s service) (*connection, error) {
	p := &connection{transport: "fd", url: "fd::3/" + t.host + "/" + strings.TrimPrefix(t.path, "/")}
	session, err := t.connect(ctx, dialer, p)
	if err == nil {
		err = t.startService(session, p, s)
	}
	if err != nil {
		p.close()
		return p, err
	}
	return p, nil
}

func (t *sshTarget) connect(ctx context.Context, dialer contextDialer, p *connection) (*ssh.Session, error) {
	conn, err := dialer.DialContext(egress.WithPrivateHook(ctx, p.fault.inPrivateNetwork), "tcp", t.host)
	if err != nil {
		p.fault.dialError(err)
		return nil, fmt.Errorf("connecting: %w", err)
	}
	// The connection ends with the call and with the connection of git.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	p.closers = append(p.closers, func() { stop(); _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(sshTimeout)) // fails only on a closed connection
	c, channels, requests, err := ssh.NewClientConn(conn, t.host, &t.config)
	if err != nil {
		handshakeFault(p, err)
		return nil, fmt.Errorf("connecting: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	session, err := ssh.NewClient(c, channels, requests).NewSession()
	if err != nil {
		p.fault.set("the server rejected the request", "", err.Error())
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return session, nil
}

// handshakeFault translates the errors of the SSH library.
func handshakeFault(p *connection, err error) {
	var unknown *hostKeyError
	switch {
	case errors.As(err, &unknown):
		p.fault.setFor(fleet.ReasonHostKeyUnknown, unknown.Error(), "", "")
	case strings.Contains(err.Error(), "unable to authenticate"):
		p.fault.set(notReadable, "", err.Error())
	default:
		p.fault.set("the SSH connection failed", "", err.Error())
	}
}

// startService starts the service and connects it to a socket, whose other end is for git.
func (t *sshTarget) startService(session *ssh.Session, p *connection, s service) error {
	stdin, err := session.StdinPipe()
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	stderr := &tail{limit: maxStderr}
	session.Stderr = stderr
	local, gitEnd, err := socketPair()
	if err != nil {
		return err
	}
	p.files = append(p.files, gitEnd)
	p.closers = append(p.closers, func() { _ = local.Close() })
	// A server that does not support it answers in version 1.
	_ = session.Setenv("GIT_PROTOCOL", "version=2")
	if err := session.Start(string(s) + " " + shellQuote(t.path)); err != nil {
		p.fault.set(notReadable, "", err.Error())
		return fmt.Errorf("connecting: %w", err)
	}
	go func() {
		_, _ = io.Copy(stdin, local) // the other direction reports the error
		_ = stdin.Close()
	}()
	go func() {
		n, err := io.Copy(local, stdout)
		if err == nil {
			err = session.Wait()
		}
		recordEnd(&p.fault, s, n, err, stderr)
		_ = local.CloseWrite() // git sees the end only now, after the fault is recorded
	}()
	return nil
}

// recordEnd distinguishes a rejected repository, which hosts report in many ways, from a lost connection.
func recordEnd(f *fault, s service, n int64, err error, stderr *tail) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit):
		f.connectionLost(err)
	case n == 0 && s == receivePack:
		// A user with read access knows that the repository exists, so the message of the host reveals nothing.
		f.setPublic("", notWritable, cleanText(lastLine(stderr.String())), "")
	case n == 0:
		f.set(notReadable, "", lastLine(stderr.String()))
	}
}

// socketPair returns the two ends of a stream, one of them for another process.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // a process that starts in the meantime must not inherit them
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("creating a socket for git: %w", err)
	}
	local, gitEnd := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "git")
	conn, err := net.FileConn(local) // it duplicates the descriptor
	_ = local.Close()
	if err != nil {
		_ = gitEnd.Close()
		return nil, nil, fmt.Errorf("creating a socket for git: %w", err)
	}
	return conn.(*net.UnixConn), gitEnd, nil
}

// shellQuote quotes like git. Hosts without a shell parse that form.
func shellQuote(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}
