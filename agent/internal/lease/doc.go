// Package lease elects one leader among the replicas of an agent, with one Lease object in the agent's own namespace.
//
// The leader renews the Lease every few seconds. Followers watch it and write nothing. A follower acquires a released Lease
// when it receives the watch event. It acquires the Lease of a dead holder when the Lease has not changed for its duration.
// A follower measures that time with its own clock, from when it observed the last change, because the clocks of two
// machines may differ.
//
//	           released or expired
//	follow ───────────────────────────▶ lead
//	   ▲                                 │
//	   └─── not renewed in time, or ─────┘
//	        another replica holds it
//
// The work of a leader is a [Term]. A term continues while leadership is lost, as long as no other replica can have led:
// when the API server is unavailable for an hour, the Lease does not change, and the replica that finds itself as the
// holder leads again and continues its term. A replica that finds another holder, no holder or no Lease stops its term
// before it tries to acquire the Lease.
//
// A leader that cannot renew stops all changes before another replica can acquire the Lease: its deadline is shorter than
// the duration of the Lease and starts when it sent the last successful renewal. A process that was suspended for longer
// resumes after its deadline, perhaps in the middle of a request. [Fence] therefore cancels requests in flight and rejects
// new ones that could change the cluster. It checks the deadline when a request starts and again while its body is sent.
//
// When somebody deletes the Lease, its holder keeps the leadership for the duration of the Lease, and creates it again. A
// replica that has just started cannot know that there was a Lease, so it waits for a short time before it creates one.
//
// The leader elector of client-go is not used because its followers poll the object, and an idle agent must not poll.
package lease
