package obs_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kedge-dev/kedge/internal/obs"
)

func TestDurationsAreReadable(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]string{
		0: "0s", 17: "17ns", 1234567: "1.23ms", 1234567890: "1.23s", -1234567890: "-1.23s", 59*time.Minute + 59*time.Second + 999*time.Millisecond: "1h0m0s",
		90*time.Second + 123*time.Millisecond: "1m30.1s", 26*time.Hour + 3*time.Minute + 4*time.Second: "26h3m4s",
	} {
		var out bytes.Buffer
		log, err := obs.NewLogger(&out, obs.FormatJSON)
		if err != nil {
			t.Fatal(err)
		}
		log.With("since", took).Info("migrated", slog.Duration(obs.KeyDuration, took), "n", 7, slog.Group("in", "took", took))
		var line struct {
			Since, Duration string
			N               int
			In              struct{ Took string }
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, out.String())
		}
		if line.Duration != want || line.Since != want || line.In.Took != want || line.N != 7 {
			t.Errorf("%d ns is written as %s, want %s", took, out.String(), want)
		}
	}
	var out bytes.Buffer
	log, err := obs.NewLogger(&out, obs.FormatText)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", obs.KeyDuration, 1234567*time.Nanosecond)
	if !strings.Contains(out.String(), "duration=1.23ms") {
		t.Errorf("got %s", out.String())
	}
}
