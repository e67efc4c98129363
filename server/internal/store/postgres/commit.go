package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kedge-dev/kedge/server/internal/store"
	"github.com/kedge-dev/kedge/server/internal/store/sqlstore"
)

const (
	// channel is the notification channel for commits with changes.
	channel = "kedge_changes"

	lockOutbox    = "SELECT pg_advisory_xact_lock($1, 0)"
	finish        = "SELECT kedge_finish($1, $2, $3, $4)"
	notify        = "SELECT pg_notify('" + channel + "', $1)"
	insertChanges = `INSERT INTO changes (tenant_id, kind, id, agent_id, deployment_id, reason, ref, at)
		SELECT $1, c.kind, c.id, c.agent_id, c.deployment_id, c.reason, c.ref, $2
		FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) WITH ORDINALITY
			AS c (kind, id, agent_id, deployment_id, reason, ref, position)
		ORDER BY c.position`
)

// Finish implements [sqlstore.Conn]. From here to the commit, other transactions wait at this point.
func (t *tx) Finish(ctx context.Context, tail sqlstore.Tail) error {
	if err := t.Usable(ctx); err != nil || tail.Empty() {
		return err
	}
	var b pgx.Batch
	t.queue(&b, tail)
	return t.send(ctx, &b)
}

// commit writes the outbox and ends the transaction, in one message: the time that others wait does not depend
// on the network.
func (t *tx) commit(ctx context.Context, tail sqlstore.Tail) error {
	if err := t.Usable(ctx); err != nil {
		return err
	}
	if !t.begun && tail.Empty() {
		t.ended = true
		return nil
	}
	var b pgx.Batch
	t.queue(&b, tail)
	if t.recorded {
		b.Queue(notify, t.origin)
	}
	b.Queue("COMMIT")
	t.committing = true
	if err := t.send(ctx, &b); err != nil {
		return err
	}
	t.ended = true
	return nil
}

// mayHaveRecorded reports whether there may be new records in the outbox: if the response to a commit is lost,
// its outcome is unknown.
func (t *tx) mayHaveRecorded(err error) bool {
	return t.recorded && (err == nil || t.committing && !errors.Is(err, errConflict))
}

func (t *tx) queue(b *pgx.Batch, tail sqlstore.Tail) {
	if tail.Empty() {
		return
	}
	t.open(b)
	t.queueLock(b, tail.Subjects())
	for _, s := range tail.Statements {
		t.goTo(b, placeOf(s.Of))
		b.Queue(translate(s.Query), clean(s.Args)...)
	}
	for rest := tail.Changes; len(rest) > 0; {
		n := run(rest)
		t.queueChanges(b, tail.At, rest[:n])
		rest = rest[n:]
	}
	t.recorded = t.recorded || len(tail.Changes) > 0
}

// queueLock takes the lock of the outbox and, if the structure of a subject has changed, checks that everything
// that was read is unchanged.
func (t *tx) queueLock(b *pgx.Batch, written []sqlstore.Subject) {
	if len(written) == 0 {
		if !t.last {
			b.Queue(lockOutbox, int32(lockClass))
			t.last = true
		}
		return
	}
	// Not nil: that would be NULL.
	looked, seen, names, keys := []string{}, []int64{}, []string{}, []int32{}
	if !t.checked { // afterwards the lock prevents changes
		for s, n := range t.serials {
			looked, seen = append(looked, string(s)), append(seen, n)
		}
	}
	for _, s := range written {
		names = append(names, string(s))
		if key := gateOf(s); !s.Lasting() && !t.holds(key) {
			keys = append(keys, key)
		}
	}
	t.goTo(b, place{role: fleetRole})
	b.Queue(finish, looked, seen, names, keys)
	t.last, t.checked = true, true
}

// holds reports whether the transaction holds a gate. It must not request it again: waiting transactions come
// first, even before the holder.
func (t *tx) holds(key int32) bool {
	return slices.ContainsFunc(t.gates, func(g gate) bool { return g.key == key })
}

// queueChanges writes records of one tenant.
func (t *tx) queueChanges(b *pgx.Batch, at time.Time, changes []store.Change) {
	var kinds, ids, agents, deployments, reasons, refs []string
	for _, c := range changes {
		kinds, ids, refs = append(kinds, string(c.Kind)), append(ids, c.ID), append(refs, sqlstore.Mend(c.Ref))
		agents, deployments = append(agents, string(c.AgentID)), append(deployments, string(c.DeploymentID))
		reasons = append(reasons, string(c.Reason))
	}
	tenant := string(changes[0].TenantID)
	t.goTo(b, place{appRole, tenant})
	b.Queue(insertChanges, tenant, at.UnixMicro(), kinds, ids, agents, deployments, reasons, refs)
}

// run returns how many records at the start belong to the same tenant.
func run(changes []store.Change) int {
	for i, c := range changes {
		if c.TenantID != changes[0].TenantID {
			return i
		}
	}
	return len(changes)
}
