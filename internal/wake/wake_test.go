package wake_test

import (
	"testing"

	"github.com/kedge-dev/kedge/internal/wake"
)

func TestSignalsAreCoalesced(t *testing.T) {
	t.Parallel()
	s := wake.New()
	for range 3 {
		s.Set()
	}
	<-s
	select {
	case <-s:
		t.Error("three signals woke the receiver twice")
	default:
	}
}
