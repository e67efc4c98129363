package main

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/kedge-dev/kedge/server"
)

func TestSizeFlag(t *testing.T) {
	t.Parallel()
	tests := []struct {
		given string
		want  int64 // 0 if it is rejected
	}{
		{"512Mi", 512 << 20}, {"2Gi", 2 << 30}, {"1000", 1000}, {"1G", 1e9},
		{"", 0}, {"much", 0}, {"-1Gi", 0}, {"0", 0},
	}
	for _, tt := range tests {
		var got size
		if err := got.Set(tt.given); (err != nil) != (tt.want == 0) || int64(got) != tt.want {
			t.Errorf("%q is %d, %v, want %d", tt.given, got, err, tt.want)
		}
	}
}

func TestRenderFlags(t *testing.T) {
	t.Parallel()
	var r server.RenderConfig
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	renderFlags(f, &r)
	if err := f.Parse([]string{"--render-memory=2Gi", "--require-sandbox"}); err != nil {
		t.Fatal(err)
	}
	if r.Memory != 2<<30 || r.Output != 64<<20 || len(r.RequireSandbox) != 1 || r.RequireSandbox[0] != "all" || r.Program == "" {
		t.Errorf("got %+v", r)
	}
}
