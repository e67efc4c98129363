package fleet

// Cause is a reason with the message that explains it to people. The zero value means that there is none. Causes are
// comparable; programs compare the Reason and never the Message.
type Cause struct {
	Reason  Reason // never "" unless the cause is zero
	Message string // a sentence or a part of one; may be empty
}

// IsZero reports whether there is no cause.
func (c Cause) IsZero() bool { return c == Cause{} }

// String returns the message.
func (c Cause) String() string { return c.Message }
