package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"time"
)

const (
	floorConns   = 100
	floorRounds  = 20
	floorMessage = 1 << 10 // about a small bundle with its frame
)

// tlsEnds is a bare TLS server and its clients in this process.
type tlsEnds struct {
	listener net.Listener
	config   *tls.Config
}

func newTLSEnds() (*tlsEnds, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "floor"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	if err != nil {
		return nil, err
	}
	return &tlsEnds{listener: l, config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, ServerName: "localhost"}}, nil
}

// connect opens one connection, with both ends of the handshake done.
func (e *tlsEnds) connect(ctx context.Context) (server, client net.Conn, err error) {
	accepted := make(chan error, 1)
	go func() {
		var err error
		if server, err = e.listener.Accept(); err == nil {
			err = server.(*tls.Conn).HandshakeContext(ctx)
		}
		accepted <- err
	}()
	client, err = (&tls.Dialer{Config: e.config}).DialContext(ctx, "tcp", e.listener.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	return server, client, <-accepted
}

// handshakeFloor is the cost of one bare TLS connection, both ends on this machine, one after another.
func handshakeFloor(ctx context.Context) (time.Duration, error) {
	e, err := newTLSEnds()
	if err != nil {
		return 0, err
	}
	defer e.listener.Close()
	started := time.Now()
	for range floorConns {
		server, client, err := e.connect(ctx)
		if err != nil {
			return 0, err
		}
		_, _ = server.Close(), client.Close()
	}
	return time.Since(started) / floorConns, nil
}

// messageFloor is the cost of one small message over a warm TLS connection, both ends on this machine.
func messageFloor(ctx context.Context) (time.Duration, error) {
	e, err := newTLSEnds()
	if err != nil {
		return 0, err
	}
	defer e.listener.Close()
	var servers []net.Conn
	read := make(chan error, floorConns)
	for range floorConns {
		server, client, err := e.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer server.Close()
		defer client.Close()
		servers = append(servers, server)
		go func() {
			_, err := io.CopyN(io.Discard, client, floorRounds*floorMessage)
			read <- err
		}()
	}
	started, message := time.Now(), make([]byte, floorMessage)
	for range floorRounds {
		for _, s := range servers {
			if _, err := s.Write(message); err != nil {
				return 0, err
			}
		}
	}
	var errs []error
	for range servers {
		errs = append(errs, <-read)
	}
	return time.Since(started) / (floorConns * floorRounds), errors.Join(errs...)
}
