package restapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kedge-dev/kedge/internal/plaintext"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// hostile is what a terminal acts on: an escape sequence, an overwritten line, another order of letters.
const hostile = "fine\x1b[2J\r\u202Eenif\u009b31m"

// covers: T6 (what is stored is fit to be shown)
func TestStatusMessagesOfPollingAgentsAreCleaned(t *testing.T) {
	t.Parallel()
	var got []control.AgentReports
	h := restapi.New(config(), fake{standin: newStandin(), report: func(batch []control.AgentReports) error {
		got = batch
		return nil
	}})
	text, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"items":[{"id":"tgt-1","epoch":1,"generation":1,"sync":"Synced","health":"Current","message":` + string(text) + `,"objects":[
		{"version":"v1","kind":"ConfigMap","name":"a","sync":"Synced","health":"Current","message":` + string(text) + `}]}]}`
	if got := do(t, h, "POST", cluster+"status", body, asAgent...); got.status != 204 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	r := got[0].Reports[0]
	for _, message := range []string{r.Observed.Message, r.Objects[0].Message} {
		if !plaintext.IsPlain(message) || !strings.Contains(message, "fine") {
			t.Errorf("the message %q is stored", message)
		}
	}
}

func FuzzRequestsAreCleaned(f *testing.F) {
	f.Add(hostile, "name")
	f.Fuzz(func(t *testing.T, message, name string) {
		var got []control.AgentReports
		h := restapi.New(config(), fake{standin: newStandin(), report: func(batch []control.AgentReports) error {
			got = batch
			return nil
		}})
		body, err := json.Marshal(map[string]any{"items": []any{map[string]any{
			"id": "tgt-1", "sync": "Synced", "health": "Current", "message": message,
			"objects": []any{map[string]any{"version": "v1", "kind": "ConfigMap", "name": name, "sync": "Synced", "health": "Current"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if answer := do(t, h, "POST", cluster+"status", string(body), asAgent...); answer.status != 204 {
			return // refused
		}
		r := got[0].Reports[0]
		if !plaintext.IsPlain(r.Observed.Message) || !plaintext.IsPlain(r.Objects[0].Name) {
			t.Errorf("%q and %q are stored as %q and %q", message, name, r.Observed.Message, r.Objects[0].Name)
		}
	})
}
