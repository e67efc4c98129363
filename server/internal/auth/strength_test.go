package auth_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
)

// covers: C5
func TestWeakUserTokensAreRejected(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		token  string
	}{
		"Empty":      {"an empty token is not a secret", ""},
		"Short":      {"sixteen random characters are too few", "9fK2mQ7xLw3Zp8Rt"},
		"OneLetter":  {"length is not sufficient", strings.Repeat("a", 64)},
		"Repeated":   {"a repeated word is weak", strings.Repeat("password", 8)},
		"Sequence":   {"a sequence is predictable", "0123456789abcdefghijklmnopqrstuvwxyz0123456789"},
		"Passphrase": {"words are guessed word by word", "this-is-the-secret-token-of-our-prod-cluster"},
		"Shouted":    {"capital letters do not make words stronger", "ThisIsTheSecretTokenOfOurProdClusterInParis"},
		"Padded":     {"a weak start with padding", "letmein-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
		"Halves":     {"eight random bytes repeated", "9f8c2d4b7a1e605f9f8c2d4b7a1e605f"},
		"Space":      {"a space is not valid in a header", "9fK2mQ7xLw3Zp8Rt 9vB4nC6hJd1Ys5Gu"},
		"NotASCII":   {"only ASCII is valid in a header", "9fK2mQ7xLw3Zp8Rté9vB4nC6hJd1Ys5Gu"},
		"Endless":    {"every input has a size limit", hex.EncodeToString(randomBytes(t, 300))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := auth.CheckUserToken("token", tc.token)
			var invalid *fleet.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "token" {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if tc.token != "" && strings.Contains(err.Error(), tc.token) {
				t.Errorf("the error contains the token: %v", err)
			}
		})
	}
}

func TestErrorDescribesAStrongToken(t *testing.T) {
	t.Parallel()
	err := auth.CheckUserToken("token", "hunter2")
	if err == nil || !strings.Contains(err.Error(), "openssl rand -hex 32") {
		t.Fatalf("got %v", err)
	}
}

// covers: C5
func TestRandomUserTokensAreAccepted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// The bytes must be random. They need not be incompressible.
		seed := randomBytes(t, rapid.IntRange(16, 64).Draw(t, "bytes"))
		for _, token := range []string{
			hex.EncodeToString(seed), uuid(seed), auth.NewToken(auth.AgentTokenPrefix),
			base64.StdEncoding.EncodeToString(randomBytes(t, len(seed)+32)),
		} {
			if err := auth.CheckUserToken("token", token); err != nil {
				t.Fatalf("%q: %v", token, err)
			}
		}
	})
}

func uuid(b []byte) string {
	h := hex.EncodeToString(b[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func randomBytes(t interface{ Fatal(args ...any) }, n int) []byte {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}
