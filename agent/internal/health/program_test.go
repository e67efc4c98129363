package health

import (
	"fmt"
	"testing"
)

func TestProgramsAreKeptAndBounded(t *testing.T) {
	t.Parallel()
	p := programs{known: map[string]program{}}
	first, err := p.get("1 == 1")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := p.get("1 == 1"); err != nil || again != first {
		t.Errorf("got another program (%v), want the one that was compiled", err)
	}
	for i := range maxPrograms + 10 {
		if _, err := p.get(fmt.Sprintf("%d +", i)); err == nil {
			t.Fatal("an expression that makes no sense was compiled")
		}
		if len(p.known) > maxPrograms {
			t.Fatalf("%d programs are kept, want at most %d", len(p.known), maxPrograms)
		}
	}
}
