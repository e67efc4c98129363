// Package membership makes this process one of the replicas that share a database: it writes heartbeats,
// watches the other replicas, and spreads named work over them with one leader for each name.
//
// It must not know the work itself: callers pass a function to Lead. It knows nothing of agents; the caller
// opens the rows of its connections again through Config.Reopen.
//
// Invariants: work runs on one replica at a time, because its leader holds a lock of the database for as long as
// it runs. Rendezvous hashing over the live replicas only chooses who tries to take that lock, so replicas that
// disagree about who is live never lead the same name together. A replica counts as gone when its lock is free or
// its heartbeat has not changed for long enough by the clock of the observer; clocks need not agree.
//
// Concurrency: a [Member] is safe for concurrent use. ShowAlive and Join are called once, before Run and Lead.
package membership
