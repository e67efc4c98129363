package localcluster

import (
	"errors"
	"os"
	"testing"
)

// Only a port that another program took before the API server justifies another attempt.
func TestExitErrorTellsLostPortsFromOtherEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, log string
		want      bool
	}{
		{"taken", "failed to listen on 127.0.0.1:1: listen tcp 127.0.0.1:1: bind: address already in use\n", true},
		{"other", "unknown flag: --nonsense\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := &Cluster{dir: t.TempDir()}
			if err := os.WriteFile(c.logFile("kube-apiserver"), []byte(tc.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.exitError("kube-apiserver", errors.New("exit status 1")); errors.Is(err, errPortTaken) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}
