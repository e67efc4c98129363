// Command kubelet serves the sessions of a simulated node: exec, attach, port-forward and logs, for tests. Commands run as
// processes of this machine in the folder -dir. The log of a container is the file NAMESPACE_POD.log in that folder, and
// NAMESPACE_POD.previous.log before its restart. It prints the port that it listens on.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

func main() {
	dir := flag.String("dir", ".", "folder of commands and logs")
	flag.Parse()
	if err := run(*dir); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	cert, err := selfSigned()
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	n := node{dir: dir}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", n.attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", n.forward)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", n.logs)
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(l)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

const (
	idle     = 4 * time.Hour
	creation = 30 * time.Second
)

// node runs the commands of all containers.
type node struct{ dir string }

func (n node) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, n, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options, idle, creation, remotecommand.SupportedStreamingProtocols)
}

func (n node) attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, n, r.PathValue("pod"), "", r.PathValue("container"), options, idle, creation, remotecommand.SupportedStreamingProtocols)
}

func (n node) forward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, n, r.PathValue("pod"), "", options, idle, creation, portforward.SupportedProtocols)
}

// ExecInContainer runs a command. It ends the input of the command with the input of the session, and returns its exit code.
func (n node) ExecInContainer(ctx context.Context, _, _, _ string, cmd []string, in io.Reader, out, errs io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(cmd) == 0 {
		return errors.New("no command")
	}
	p := exec.CommandContext(ctx, cmd[0], cmd[1:]...)
	p.Dir = n.dir
	if out != nil {
		p.Stdout = out
	}
	switch {
	case tty:
		p.Stderr = p.Stdout
	case errs != nil:
		p.Stderr = errs
	}
	var stdin io.WriteCloser
	if in != nil {
		var err error
		if stdin, err = p.StdinPipe(); err != nil {
			return err
		}
	}
	if err := p.Start(); err != nil {
		return err
	}
	if stdin != nil {
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	err := p.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// AttachContainer repeats what it reads.
func (n node) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if _, err := io.WriteString(out, "attached\n"); err != nil || in == nil {
		return err
	}
	_, err := io.Copy(out, in)
	return err
}

// PortForward connects to a port of this machine.
func (n node) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// logs serves the log of a container. If asked to, it follows the file until the client goes, also if there is none yet.
func (n node) logs(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name, follow := r.PathValue("namespace")+"_"+r.PathValue("pod"), query.Get("follow") == "true"
	if query.Get("previous") == "true" {
		name += ".previous"
	}
	w.Header().Set("Transfer-Encoding", "chunked")
	sent := 0
	for {
		text, err := os.ReadFile(filepath.Join(n.dir, filepath.Base(name+".log")))
		if err != nil && !follow {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		lines := strings.SplitAfter(string(text), "\n")
		lines = lines[:len(lines)-1] // what has no end yet
		if tail, err := strconv.Atoi(query.Get("tailLines")); err == nil && sent == 0 {
			sent = max(0, len(lines)-tail)
		}
		for ; sent < len(lines); sent++ {
			if _, err := io.WriteString(w, logLine(lines[sent], query)); err != nil {
				return
			}
		}
		if !follow {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logLine is a line as the client wants it. In the file, it may begin with its time, as in the logs of a container runtime.
func logLine(line string, query url.Values) string {
	stamp, text, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		at, text = time.Now(), line
	}
	if since, err := time.Parse(time.RFC3339, query.Get("sinceTime")); err == nil && at.Before(since) {
		return ""
	}
	if query.Get("timestamps") == "true" {
		return at.UTC().Format(time.RFC3339Nano) + " " + text
	}
	return text
}
