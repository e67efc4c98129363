package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/seal"
)

func newKey(t *testing.T, id string) string {
	t.Helper()
	line, err := seal.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func parse(t *testing.T, lines ...string) *seal.Ring {
	t.Helper()
	ring, err := seal.Parse([]byte(strings.Join(lines, "")))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func TestSecretOpensOnlyWithItsKeyAndOwner(t *testing.T) {
	t.Parallel()
	old, fresh, other := newKey(t, "2025"), newKey(t, "2026"), newKey(t, "2025")
	sealed, err := parse(t, old).Seal(seal.NewSecret("hunter2"), "ten-a/crd-1")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed.Data, []byte("hunter2")) {
		t.Fatal("the secret is not encrypted")
	}
	damaged := sealed
	damaged.Data = append([]byte{}, sealed.Data...)
	damaged.Data[len(damaged.Data)-1] ^= 1
	cases := map[string]struct {
		reason string
		ring   *seal.Ring
		sealed fleet.Sealed
		owner  string
		opens  bool
	}{
		"Same":       {"its key opens it", parse(t, old), sealed, "ten-a/crd-1", true},
		"Rotated":    {"a file with a newer first key opens it", parse(t, "# rotated\n\n", fresh, old), sealed, "ten-a/crd-1", true},
		"Missing":    {"a file without its key does not open it", parse(t, fresh), sealed, "ten-a/crd-1", false},
		"OtherKey":   {"another key with the same id does not open it", parse(t, other), sealed, "ten-a/crd-1", false},
		"OtherOwner": {"it cannot be opened for another owner", parse(t, old), sealed, "ten-b/crd-1", false},
		"Damaged":    {"it cannot be opened after a change", parse(t, old), damaged, "ten-a/crd-1", false},
		"Swapped":    {"it cannot be opened with swapped layers", parse(t, old), fleet.Sealed{KeyID: sealed.KeyID, Key: sealed.Data, Data: sealed.Key}, "ten-a/crd-1", false},
		"Nothing":    {"an empty secret cannot be opened", parse(t, old), fleet.Sealed{KeyID: sealed.KeyID}, "ten-a/crd-1", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.ring.Open(tc.sealed, tc.owner)
			if tc.opens {
				if err != nil || got.Reveal() != "hunter2" {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				return
			}
			if !errors.Is(err, seal.ErrWrongKey) || !got.Empty() {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestFirstKeySealsWithARandomNonce(t *testing.T) {
	t.Parallel()
	ring := parse(t, newKey(t, "b"), newKey(t, "a"))
	one, err := ring.Seal(seal.NewSecret("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := ring.Seal(seal.NewSecret("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	if one.KeyID != "b" || ring.KeyID() != "b" {
		t.Errorf("sealed with %q", one.KeyID)
	}
	if bytes.Equal(one.Data, two.Data) || bytes.Equal(one.Key, two.Key) {
		t.Error("equal secrets have equal encrypted forms")
	}
}

func TestInvalidKeyFilesAreRejectedWithoutShowingKeys(t *testing.T) {
	t.Parallel()
	good := newKey(t, "a")
	cases := map[string]string{
		"Empty": "# none\n", "NoColon": "abcdef\n", "BadID": "a b:" + good[2:], "Short": "a:c2hvcnQ=\n", "NotBase64": "a:" + strings.Repeat("?", 44), "Twice": good + good,
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := seal.Parse([]byte(text))
			if err == nil {
				t.Fatal("accepted")
			}
			if key := strings.TrimSpace(good[2:]); strings.Contains(err.Error(), key) {
				t.Errorf("the key is in the error: %v", err)
			}
		})
	}
	if _, err := seal.NewKey("no:colon"); err == nil {
		t.Error("an invalid id was accepted")
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := seal.NewSecret("hunter2")
	holder := struct {
		S seal.Secret
		P *seal.Secret
	}{s, &s}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "a", s, "b", holder, "c", &holder)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "a", s, "b", holder, "c", &holder)
	data, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q %d %x", s, s, s, s, s, s, s), fmt.Sprintf("%v %+v %#v", holder, holder, holder), string(data), log.String(),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("printed: %s", text)
		}
	}
}
