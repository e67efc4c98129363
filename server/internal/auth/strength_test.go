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
func TestWeakChosenTokensAreRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		token  string
	}{
		"Empty":      {"nothing is no secret", ""},
		"Short":      {"sixteen random characters are too few", "9fK2mQ7xLw3Zp8Rt"},
		"OneLetter":  {"length alone is nothing", strings.Repeat("a", 64)},
		"Repeated":   {"a word does not get better by saying it often", strings.Repeat("password", 8)},
		"Sequence":   {"everybody can count", "0123456789abcdefghijklmnopqrstuvwxyz0123456789"},
		"Passphrase": {"words are guessed word by word", "this-is-the-secret-token-of-our-prod-cluster"},
		"Shouted":    {"capitals do not hide words", "ThisIsTheSecretTokenOfOurProdClusterInParis"},
		"Padded":     {"a weak start with padding", "letmein-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
		"Halves":     {"eight random bytes said twice", "9f8c2d4b7a1e605f9f8c2d4b7a1e605f"},
		"Space":      {"a space does not travel in a header", "9fK2mQ7xLw3Zp8Rt 9vB4nC6hJd1Ys5Gu"},
		"NotASCII":   {"neither does this", "9fK2mQ7xLw3Zp8Rté9vB4nC6hJd1Ys5Gu"},
		"Endless":    {"a size bound for every input", hex.EncodeToString(randomBytes(t, 300))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := auth.CheckChosen("token", tc.token)
			var invalid *fleet.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "token" {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if tc.token != "" && strings.Contains(err.Error(), tc.token) {
				t.Errorf("the refusal repeats the token: %v", err)
			}
		})
	}
}

func TestRefusalSaysWhatWouldBeStrongEnough(t *testing.T) {
	t.Parallel()
	err := auth.CheckChosen("token", "hunter2")
	if err == nil || !strings.Contains(err.Error(), "openssl rand -hex 32") {
		t.Fatalf("got %v", err)
	}
}

// covers: C5
func TestRandomChosenTokensAreAccepted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// What matters is that the bytes are random, not that they shrink well.
		seed := randomBytes(t, rapid.IntRange(16, 64).Draw(t, "bytes"))
		for _, token := range []string{
			hex.EncodeToString(seed), uuid(seed), auth.NewToken(auth.AgentTokenPrefix),
			base64.StdEncoding.EncodeToString(randomBytes(t, len(seed)+32)),
		} {
			if err := auth.CheckChosen("token", token); err != nil {
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
