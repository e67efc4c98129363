package wire

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestHandOversFitIntoAFrame(t *testing.T) {
	t.Parallel()
	named := func(n int) []fleet.HandOver {
		var names []string
		for i := range n {
			names = append(names, fleet.ObjectRef{
				Group: strings.Repeat("g.", 100) + "io", Version: "v1", Kind: strings.Repeat("K", 60), Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%0240d", i),
			}.String())
		}
		return []fleet.HandOver{{Reason: fleet.ReasonHandOverPending, Objects: names}}
	}
	n := 1
	for !TooManyHandedOver(named(2 * n)) {
		n *= 2
	}
	d := Desired{Target: "tgt-a", State: fleet.Desired{HandOvers: named(n)}}
	if size := proto.Size(d.Proto()); size > MaxFrame/2 {
		t.Errorf("hand-overs with %d objects have a frame of %d bytes", n, size)
	}
	if !TooManyHandedOver(named(MaxHandedOver)) || TooManyHandedOver(nil) {
		t.Error("the length of names is not counted")
	}
}
