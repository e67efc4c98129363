package gitsource_test

import (
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kedge-dev/kedge/internal/testkit/gitserver"
)

// keys creates SSH keys by name.
type keys struct {
	mu   sync.Mutex
	made map[string]key
}

type key struct {
	private []byte
	public  ssh.PublicKey
}

func newKeys() *keys { return &keys{made: map[string]key{}} }

func (k *keys) get(t testing.TB, name string) key {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.made[name]; !ok {
		private, public, err := gitserver.NewKey()
		check(t, err)
		k.made[name] = key{private, public}
	}
	return k.made[name]
}

func (k *keys) private(t testing.TB, name string) []byte {
	t.Helper()
	return k.get(t, name).private
}

func (k *keys) public(t testing.TB, names ...string) []ssh.PublicKey {
	t.Helper()
	var out []ssh.PublicKey
	for _, name := range names {
		out = append(out, k.get(t, name).public)
	}
	return out
}
