package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kedge-dev/kedge/internal/wait"
)

const (
	// Delays before a listener reconnects. They grow and have jitter, because all replicas lose their
	// connections at the same time.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// quiet is how long a connection may be idle before it is checked.
	quiet = 30 * time.Second
)

// listener receives notifications about commits of other processes.
type listener struct {
	config *pgx.ConnConfig
	origin string
	heard  func()
	log    *slog.Logger
	// doubted triggers an immediate check whether the node is writable.
	doubted wait.Signal
}

func (l *listener) verify() {
	l.doubted.Set()
}

// listen opens a connection that receives notifications from now on.
func listen(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config.Copy())
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+channel)
	}
	if err != nil {
		err = fmt.Errorf("listening for changes: %w", unreachable(ctx, err))
		if conn != nil {
			_ = conn.Close(ctx)
		}
		return nil, err
	}
	return conn, nil
}

// run listens until ctx ends, on conn first and on a new connection after a failure.
func (l *listener) run(ctx context.Context, conn *pgx.Conn) {
	backoff := minBackoff
	for {
		if conn != nil {
			err := l.receive(ctx, conn)
			l.close(ctx, conn)
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "lost the connection that listens for changes", "error", err)
			}
			backoff = minBackoff
		}
		if !sleep(ctx, backoff/2+rand.N(backoff/2)) {
			return
		}
		backoff = min(2*backoff, maxBackoff)
		var err error
		if conn, err = listen(ctx, l.config); err != nil {
			l.log.WarnContext(ctx, "could not listen for changes", "error", err)
			continue
		}
		l.heard() // notifications in the meantime are lost
	}
}

// receive forwards notifications until the connection breaks or ctx ends. It ignores those of this process,
// whose subscribers are already notified.
func (l *listener) receive(ctx context.Context, conn *pgx.Conn) error {
	for {
		said, err := l.await(ctx, conn)
		switch {
		case err == nil && said == nil:
			err = ping(ctx, conn)
		case err == nil && said.Payload != l.origin:
			l.heard()
		}
		if err != nil {
			return err
		}
	}
}

// await waits for a notification; nil means that the connection must be checked.
func (l *listener) await(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	waiting, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	doubted := false
	watching.Go(func() {
		select {
		case <-waiting.Done():
		case <-l.doubted:
			doubted = true
			cancel()
		}
	})
	said, err := await(waiting, conn, quiet)
	cancel()
	watching.Wait()
	if doubted && err != nil && ctx.Err() == nil && !conn.IsClosed() {
		return nil, nil
	}
	return said, err
}

// await waits for a notification; nil after the timeout.
func await(ctx context.Context, conn *pgx.Conn, patience time.Duration) (*pgconn.Notification, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, err := conn.WaitForNotification(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed() {
		return nil, nil
	}
	return said, err
}

func (l *listener) close(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
