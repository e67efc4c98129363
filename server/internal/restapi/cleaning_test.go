package restapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/plaintext"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// hostile contains what a terminal interprets: an escape sequence, an overwritten line, another text direction.
const hostile = "fine\x1b[2J\r\u202Eenif\u009b31m"

// covers: T6 (what is stored is fit to be shown)
func TestStatusMessagesOfPollingAgentsAreCleaned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"items":[{"id":"tgt-1","epoch":2,"generation":1,"sync":"Synced","health":"Current","message":` + string(text) + `,"objects":[
		{"version":"v1","kind":"ConfigMap","name":"a","sync":"Synced","health":"Current","message":` + string(text) + `}]}]}`
	if got := do(t, h, "POST", cluster+"status", body, asAgent...); got.status != 204 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	stored, objects := f.target(t, "tgt-1")
	for _, message := range []string{stored.Observed.Message, objects[0].Message} {
		if !plaintext.IsPlain(message) || !strings.Contains(message, "fine") {
			t.Errorf("the message %q is stored", message)
		}
	}
}

func FuzzRequestsAreCleaned(f *testing.F) {
	f.Add(hostile, "name")
	control := newFixture(f)
	h := restapi.New(config(), control)
	f.Fuzz(func(t *testing.T, message, name string) {
		body, err := json.Marshal(map[string]any{"items": []any{map[string]any{
			"id": "tgt-1", "epoch": 2, "generation": 1, "sync": "Synced", "health": "Current", "message": message,
			"objects": []any{map[string]any{"version": "v1", "kind": "ConfigMap", "name": name, "sync": "Synced", "health": "Current"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if answer := do(t, h, "POST", cluster+"status", string(body), asAgent...); answer.status != 204 {
			return // refused
		}
		stored, objects := control.target(t, "tgt-1")
		if !plaintext.IsPlain(stored.Observed.Message) || !plaintext.IsPlain(objects[0].Name) {
			t.Errorf("%q and %q are stored as %q and %q", message, name, stored.Observed.Message, objects[0].Name)
		}
	})
}
