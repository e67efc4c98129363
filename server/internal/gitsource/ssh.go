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

	"github.com/kedge-dev/kedge/server/internal/gitsource/egress"
)

// sshTimeout bounds a connection from the first byte until the user is known.
const sshTimeout = 30 * time.Second

// sshTarget is where and as whom a repository is read over SSH, by a client in this process: the
// key is in no file and no agent, and the address is dialled like any other.
type sshTarget struct {
	host   string // with the port
	path   string
	config ssh.ClientConfig
}

func (m *Manager) sshRoute(a Access) (func(context.Context, service) (*passage, error), error) {
	target, err := newSSHTarget(a, m.cfg.Dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, s service) (*passage, error) { return target.open(ctx, m.dialer, s) }, nil
}

func newSSHTarget(a Access, tempDir string) (*sshTarget, error) {
	problem := func(format string, args ...any) error {
		return &RemoteError{Reason: ReasonCredentialUnusable, URL: a.URL, Problem: fmt.Sprintf(format, args...)}
	}
	if a.Credential == nil || len(a.Credential.SSHKey) == 0 {
		return nil, problem("ssh needs a credential with a key: store one and name it with kedge repo add %s --credential NAME", a.URL)
	}
	signer, err := ssh.ParsePrivateKey(a.Credential.SSHKey)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, problem("the SSH key is protected by a passphrase: store one that is not")
	}
	if err != nil {
		return nil, problem("the SSH key cannot be used: it is not a private key in PEM")
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

// sshParts takes an address apart as git does: in the form host:path a path is relative to the home
// folder, in a URL it is not, unless it begins with a tilde.
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

// open connects and starts the service there. Faults are in the passage, which is closed then.
func (t *sshTarget) open(ctx context.Context, dialer contextDialer, s service) (*passage, error) {
	p := &passage{transport: "fd", url: "fd::3/" + t.host + "/" + strings.TrimPrefix(t.path, "/")}
	session, err := t.connect(ctx, dialer, p)
	if err == nil {
		err = t.carry(session, p, s)
	}
	if err != nil {
		p.close()
		return p, err
	}
	return p, nil
}

func (t *sshTarget) connect(ctx context.Context, dialer contextDialer, p *passage) (*ssh.Session, error) {
	conn, err := dialer.DialContext(egress.OnPrivate(ctx, p.fault.inPrivateNetwork), "tcp", t.host)
	if err != nil {
		p.fault.connection(err)
		return nil, fmt.Errorf("connecting: %w", err)
	}
	// Whatever waits for the remote ends with the call, and nothing outlives the passage.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	p.closers = append(p.closers, func() { stop(); _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(sshTimeout)) // fails only on closed connections
	c, channels, requests, err := ssh.NewClientConn(conn, t.host, &t.config)
	if err != nil {
		handshakeFault(p, err)
		return nil, fmt.Errorf("connecting: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	session, err := ssh.NewClient(c, channels, requests).NewSession()
	if err != nil {
		p.fault.set("the server refused", "", err.Error())
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return session, nil
}

// handshakeFault is the adapter for the errors of the SSH library.
func handshakeFault(p *passage, err error) {
	var unknown *hostKeyError
	switch {
	case errors.As(err, &unknown):
		p.fault.setFor(ReasonHostKeyUnknown, unknown.Error(), "", "")
	case strings.Contains(err.Error(), "unable to authenticate"):
		p.fault.set(notReadable, "", err.Error())
	default:
		p.fault.set("the SSH connection failed", "", err.Error())
	}
}

// carry starts the service and connects it with a socket, whose other end is for git.
func (t *sshTarget) carry(session *ssh.Session, p *passage, s service) error {
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
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	p.files = append(p.files, theirs)
	p.closers = append(p.closers, func() { _ = ours.Close() })
	// A server that does not take it answers in version 1.
	_ = session.Setenv("GIT_PROTOCOL", "version=2")
	if err := session.Start(string(s) + " " + shellQuote(t.path)); err != nil {
		p.fault.set(notReadable, "", err.Error())
		return fmt.Errorf("connecting: %w", err)
	}
	go func() {
		_, _ = io.Copy(stdin, ours) // the other direction sees why it ended
		_ = stdin.Close()
	}()
	go func() {
		n, err := io.Copy(ours, stdout)
		if err == nil {
			err = session.Wait()
		}
		noteEnd(&p.fault, s, n, err, stderr)
		_ = ours.CloseWrite() // only now does git see the end
	}()
	return nil
}

// noteEnd tells a repository that is not served, which hosts say in many words, from a connection
// that broke.
func noteEnd(f *fault, s service, n int64, err error, stderr *tail) {
	var exit *ssh.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit):
		f.broken(err)
	case n == 0 && s == receivePack:
		// Who gets here may read: what the host says of writing tells nothing that is not known.
		f.tell("", notWritable, cleanText(lastLine(stderr.String())), "")
	case n == 0:
		f.set(notReadable, "", lastLine(stderr.String()))
	}
}

// socketPair returns two ends of a stream, one of them for a process.
func socketPair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock() // a process that is started meanwhile must not inherit them
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket for git: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ssh"), os.NewFile(uintptr(fds[1]), "git")
	conn, err := net.FileConn(ours) // which makes a copy
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, fmt.Errorf("making a socket for git: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// shellQuote quotes as git does, which is what hosts that are no shell take apart.
func shellQuote(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}
