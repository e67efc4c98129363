package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/render"
)

// Many small values need much more memory in the parent than their text.
//
// covers: G9
func TestTheValuesOfARenderAreBounded(t *testing.T) {
	t.Parallel()
	b := &building{process: &process{}, job: render.Job{Path: "app", Limits: render.DefaultLimits()}, left: 64 << 20, built: &render.Built{}}
	wide := strings.TrimSuffix(strings.Repeat("{},", 100_000), ",")
	var err error
	for i := 0; i < 30 && err == nil; i++ {
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a%d"},"data":[%s]}`, i, wide)
		err = b.take(t.Context(), frameObject, append(binary.AppendUvarint(nil, 0), text...))
	}
	var mistake *render.Error
	if !errors.As(err, &mistake) || !strings.Contains(mistake.Problem, "values") || len(b.built.Objects) > 19 {
		t.Errorf("%d objects of 100,000 values were taken, and then %v", len(b.built.Objects), err)
	}
}
