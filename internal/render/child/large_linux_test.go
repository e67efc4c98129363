package child_test

import (
	"syscall"
	"testing"

	"github.com/kedge-dev/kedge/internal/render/child"
)

// The memory limit of children does not depend on the memory of the server.
func TestAChildOfALargeServerIsKept(t *testing.T) {
	t.Parallel()
	const much = 200 << 20
	ballast, err := syscall.Mmap(-1, 0, much, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(ballast); err != nil {
			t.Error(err)
		}
	})
	pool := newPool(t, child.Config{Limits: child.Limits{Memory: much}})
	for _, want := range []string{"1", "2"} {
		built, err := pool.Build(t.Context(), job("a", "who"))
		if got := text(t, built, err); got != want {
			t.Fatalf("the build is number %s of its process, want %s", got, want)
		}
	}
}
