package e2e_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/internal/apiv1"
	"github.com/kedge-dev/kedge/internal/rig"
	"github.com/kedge-dev/kedge/internal/testkit"
)

// privateServers are two servers with TLS and the private API on one database. Agents use the address of the balancer.
type privateServers struct {
	*rig.Balancer
	db        *testDatabase
	with      *testServer // has the agents, until it is killed
	without   *testServer
	addresses []string
}

func startPrivateServers(t *testing.T) *privateServers {
	t.Helper()
	balancer, err := rig.StartBalancer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = balancer.Close() })
	p := &privateServers{Balancer: balancer, db: newDatabase(t)}
	cert, key := writeCA(t)
	start := func() *testServer {
		address := freeAddress(t)
		p.addresses = append(p.addresses, address)
		s := &testServer{dir: t.TempDir(), args: append(p.db.args(), "--tls-host", "localhost", "--tls-ca-cert-file", cert, "--tls-ca-key-file", key,
			"--external-url", "https://"+balancer.Address(), "--private-listen", "127.0.0.1:0", "--api-rate", "100000")}
		s.startAt(t, address)
		s.URL = "https://" + address // its own, not that of the balancer
		return s
	}
	p.with, p.without = start(), start()
	p.without.Token = p.with.Token // only the first one created it
	p.SetBackends(p.addresses[0])
	return p
}

// freeAddress returns an unused address. A server with an external URL does not print its port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// writeCA creates the CA of servers that share a database.
func writeCA(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// raw sends a request to a cluster with the API token of a caller.
func (u *kubeUser) raw(ctx context.Context, s *testServer, agent, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/api/v1"+tenantPath+"/agents/"+agent+"/kube"+path, nil)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(filepath.Join(filepath.Dir(u.kubeconfig), "token"))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+string(token))
	return s.HTTP.Do(req)
}

// covers: P3
func TestKubectlThroughAnotherServer(t *testing.T) {
	t.Parallel()
	skipShort(t)
	cluster := testkit.StartCluster(t)
	p := startPrivateServers(t)
	ns := cluster.Namespace(t)
	enroll(t, p.with, cluster, apiv1.EnrollAgent{Name: "paris", Tunnel: true})
	bind(t, cluster, "kedge-admins", "admin", "cluster-admin")
	dir := startNode(t, cluster, ns)
	cluster.Apply(t, configMap(ns, "page", "one"))
	ada := newKubeUser(t, p.without, "ada", "admin", "paris")
	allow(t, p.without, "ada", "ada", false)

	ada.run(t, "-n", ns, "get", "configmap", "page")
	watchThroughTunnel(t, ada, cluster, ns)
	for _, sockets := range []string{"true", "false"} {
		t.Run("websockets="+sockets, func(t *testing.T) {
			u := *ada
			u.env = []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + sockets}
			t.Run("exit code", func(t *testing.T) { execExitCode(t, &u, ns) })
			t.Run("input", func(t *testing.T) { execInput(t, &u, ns) })
			t.Run("copy", func(t *testing.T) { copyFiles(t, &u, ns, dir) })
			t.Run("port-forward", func(t *testing.T) { forwardPort(t, &u, ns) })
		})
	}
	auditedInKedge(t, p.without, "kube.get", "configmaps "+ns+"/page: 200")
	t.Run("revoked", func(t *testing.T) { p.revoke(t, ns) })
	t.Run("strangers", p.refuseStrangers)
	t.Run("killed", func(t *testing.T) { p.kill(t, ada, ns) })
}

// The load balancer sends the tunnels of an agent to another server than its control connection. Both servers reach the agent.
// covers: P3
func TestTunnelsArriveAtAnotherServer(t *testing.T) {
	t.Parallel()
	skipShort(t)
	cluster := testkit.StartCluster(t)
	p := startPrivateServers(t)
	ns := cluster.Namespace(t)
	enroll(t, p.with, cluster, apiv1.EnrollAgent{Name: "paris", Tunnel: true})
	p.SetBackends(p.addresses[1])
	bind(t, cluster, "kedge-admins", "admin", "cluster-admin")
	dir := startNode(t, cluster, ns)
	cluster.Apply(t, configMap(ns, "page", "one"))
	for name, s := range map[string]*testServer{"ada": p.with, "bea": p.without} {
		u := newKubeUser(t, s, name, "admin", "paris")
		allow(t, s, name, name, false)
		u.run(t, "-n", ns, "get", "configmap", "page")
		watchThroughTunnel(t, u, cluster, ns)
		execExitCode(t, u, ns)
		execInput(t, u, ns)
		copyFiles(t, u, ns, dir)
		forwardPort(t, u, ns)
	}
}

// revoke removes a rule during a watch through the server that does not have the agent.
func (p *privateServers) revoke(t *testing.T, ns string) {
	u := newKubeUser(t, p.without, "eve", "admin", "paris")
	allow(t, p.without, "eve", "eve", true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := u.raw(ctx, p.without, "paris", "/api/v1/namespaces/"+ns+"/configmaps?watch=true")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, resp)
	}
	defer resp.Body.Close()
	began := time.Now()
	p.with.call(t, http.MethodDelete, tenantPath+"/access-rules/eve", nil, nil)
	_, _ = io.Copy(io.Discard, resp.Body)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the watch ended %s after the revocation", took)
	}
}

// refuseStrangers connects to the private listener of each server without a certificate of the servers.
func (p *privateServers) refuseStrangers(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), p.db.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(t.Context(), "SELECT address FROM server_replicas")
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(addresses) != 2 {
		t.Fatalf("the servers have the addresses %q, %v", addresses, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kedge replica"}, NotAfter: time.Now().Add(time.Hour)}
	own, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		for name, certs := range map[string][]tls.Certificate{"no certificate": nil, "its own certificate": {{Certificate: [][]byte{own}, PrivateKey: key}}} {
			client, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: certs, NextProtos: []string{"h2"}})
			if err == nil { // the server refuses after the client has finished
				_ = client.SetDeadline(time.Now().Add(patience))
				_, err = io.WriteString(client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
				if err == nil {
					_, err = io.ReadAll(client)
				}
				_ = client.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "tls:") {
				t.Errorf("%s with %s: %v", address, name, err)
			}
		}
	}
}

// kill kills the server that has the agent during a watch through the other one.
func (p *privateServers) kill(t *testing.T, u *kubeUser, ns string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := u.raw(ctx, p.without, "paris", "/api/v1/namespaces/"+ns+"/configmaps?watch=true")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %+v", err, resp)
	}
	defer resp.Body.Close()
	p.with.Kill()
	killed := time.Now()
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the watch ended as if it were complete")
	}
	if took := time.Since(killed); took > 10*time.Second {
		t.Errorf("the watch ended %s after the server", took)
	}
	out, err := u.try(t, "-n", ns, "get", "configmap", "page", "--request-timeout=1s")
	t.Logf("before the agent has connected again: %v, %s", err, out)
	p.SetBackends(p.addresses[1])
	testkit.Eventually(t, patience, func(context.Context) error {
		out, err := u.try(t, "-n", ns, "get", "configmap", "page")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Logf("kubectl works %s after the server was killed", time.Since(killed).Round(time.Millisecond))
}

// covers: P3 (an absent agent)
func TestRequestsForAnAbsentAgent(t *testing.T) {
	t.Parallel()
	skipShort(t)
	p := startPrivateServers(t)
	p.with.call(t, http.MethodPost, tenantPath+"/agents", apiv1.EnrollAgent{Name: "away", Tunnel: true}, nil)
	ada := newKubeUser(t, p.without, "ada", "admin", "away")
	allow(t, p.without, "ada", "ada", false)
	ada.refused(t, "is not connected", "get", "pods")

	const requests, workers = 1000, 10
	before := p.scans(t)
	began := time.Now()
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range requests / workers {
				if err := ada.absent(t.Context(), p.without); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	took := time.Since(began)
	if t.Failed() {
		return
	}
	// Each request is authenticated. When the database has counted that, it has counted everything.
	var after map[string]int64
	testkit.Eventually(t, patience, func(context.Context) error {
		if after = p.scans(t); after["api_tokens"]-before["api_tokens"] < requests {
			return errors.New("the database has not counted all requests")
		}
		return nil
	})
	t.Logf("%d requests in %s", requests, took.Round(time.Millisecond))
	for table, n := range after {
		if n -= before[table]; table != "api_tokens" && n > requests/4 {
			t.Errorf("%d requests made %d queries of %s", requests, n, table)
		}
		t.Logf("%s: %d", table, n)
	}
}

// absent sends a request for an agent that is not connected.
func (u *kubeUser) absent(ctx context.Context, s *testServer) error {
	began := time.Now()
	resp, err := u.raw(ctx, s, "away", "/api/v1/pods")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var status struct{ Kind, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusServiceUnavailable || status.Kind != "Status" || !strings.Contains(status.Message, `agent "away" is not connected`) {
		return fmt.Errorf("%s: %+v", resp.Status, status)
	}
	if took := time.Since(began); took > 10*time.Second {
		return fmt.Errorf("the answer took %s", took)
	}
	return nil
}

// scans returns how often each table that a request needs was read.
func (p *privateServers) scans(t *testing.T) map[string]int64 {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.db.admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	out := map[string]int64{}
	for _, table := range []string{"api_tokens", "access_rules", "access_rule_subjects", "agents", "connections", "server_replicas"} {
		var n int64
		err := conn.QueryRow(t.Context(), `SELECT COALESCE(seq_scan, 0) + COALESCE(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		out[table] = n
	}
	return out
}
