// Package lease chooses which replica of an agent leads, by one Lease object in the agent's own
// namespace.
//
// The leader writes the Lease every few seconds; the others watch it and write nothing. A Lease that
// is given up is taken at the event that tells of it; one whose holder is dead is taken when it was
// not seen to change for as long as it lasts. That is measured on the clock of whoever waits, from
// the moment that the change was seen: clocks of machines may differ.
//
//	          free, or not renewed in time
//	follow ────────────────────────────────▶ lead
//	   ▲     not renewed before the deadline,  │
//	   └────────── or somebody else has it ────┘
//
// What a leader does goes on over that as a [Reign], for as long as nobody else can have led: an API
// server that is away for an hour leaves the Lease as it was, and whoever finds its own name in it goes on
// where it was. Who finds another name, none, or no Lease, ends its reign before it competes again.
//
// A leader that cannot renew ends to change anything before anybody else may begin: its deadline counts from
// when the last renewal that succeeded was sent, and is shorter than the Lease lasts. A process that
// was stopped for longer (a paused machine) finds its deadline passed when it wakes up, perhaps in
// the middle of a request: [Fence] breaks off what is under way, and refuses to send what changes anything then, whatever the work has
// noticed by itself. It is asked when a request is made and again when its content is written.
//
// A Lease that is deleted under its holder is left to it for as long as it would have lasted. Only who
// begins to compete just then cannot know that there was one: it waits for a moment, in which a leader
// that is connected has written it anew.
//
// client-go has an elector too; its followers ask for the object again and again, which an idle
// agent must not.
package lease
