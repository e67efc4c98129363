package restapi_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/control"
	"github.com/kedge-dev/kedge/server/internal/restapi"
	"github.com/kedge-dev/kedge/server/internal/store"
)

const chosenToken = "9f1c2ab87de64f03b5a1c0de77f2e8d4a6b3901c5e7f2a84"

// bodies are the bodies of operations that have one.
var bodies = map[string]string{
	"create-tenant":         `{"name":"toys","quota":{"agents":3}}`,
	"update-tenant":         `{"quota":{"agents":4}}`,
	"suspend-tenant":        `{"reason":"holidays"}`,
	"freeze-fleet":          `{"reason":"holidays"}`,
	"put-member":            `{"role":"viewer"}`,
	"create-token":          `{"name":"ci","role":"deployer","expiresIn":"90d"}`,
	"create-fleet-token":    `{"name":"ci","role":"fleet-admin"}`,
	"enroll-agent":          `{"name":"new","labels":{"a":"b"},"namespaces":["dude"],"token":"` + chosenToken + `"}`,
	"update-agent":          `{"labels":{},"namespaces":["dude"]}`,
	"create-agent-token":    `{"token":"` + chosenToken + `"}`,
	"create-environment":    `{"name":"new","matchLabels":{"region":"eu"}}`,
	"update-environment":    `{"agents":["prod"]}`,
	"suspend-environment":   `{}`,
	"create-access-rule":    `{"name":"new","subjects":[{"kind":"person","name":"anna"}],"agents":["prod"],"readOnly":true}`,
	"update-access-rule":    `{"subjects":[{"kind":"group","name":"dev"}],"allAgents":false,"agents":["prod"],"environments":[]}`,
	"create-grant":          `{"environment":"us","grantee":"shop","limits":{"kinds":["ConfigMap"]}}`,
	"update-grant":          `{"limits":{}}`,
	"create-repository":     `{"url":"https://git.example.com/new","credential":"robot"}`,
	"update-repository":     `{"credential":""}`,
	"create-credential":     `{"name":"new","kind":"https","username":"robot","secret":"hush"}`,
	"update-credential":     `{"secret":"hush"}`,
	"create-deployment":     `{"name":"new","source":{"repoURL":"https://x/y"}}`,
	"update-deployment":     `{"labels":{"a":"b"},"source":{"path":"pod"},"environment":"eu","policy":{"manual":true}}`,
	"suspend-deployment":    `{"reason":"holidays"}`,
	"create-run":            `{"revision":"main"}`,
	"delete-agent-objects":  `{"objects":3}`,
	"dismiss-targets":       `{"agent":"lost"}`,
	"confirm-prune":         `{"objects":["ConfigMap shop/old"],"agent":"prod"}`,
	"rollback-deployment":   `{"revision":1}`,
	"set-agent-config":      `{"repoURL":"https://git.example/config.git"}`,
	"set-gitlab-project":    `{"repoURL":"https://git.example/app.git"}`,
	"set-images":            `{"images":[{"name":"nginx","ref":":1.1"}],"message":"m"}`,
	"update-run":            `{"revision":"v2"}`,
	"create-engine-upgrade": `{"name":"argocd-4","revision":"v4","timeoutSeconds":60,"instances":[{"agent":"prod-argocd","deployment":"argocd","canary":"canary"}]}`,
	"halt-engine-upgrade":   `{"rollBack":true}`,
	"webhook":               `{}`,
	"confirm-login":         `{"question":"q","answer":"yes"}`,
	"exchange":              `{"code":"c","verifier":"v"}`,
	"report-status":         `{"items":[{"id":"tgt-1","epoch":1,"generation":4,"sync":"Synced","health":"Current","objects":[{"kind":"ConfigMap","name":"a","sync":"Synced","health":"Current"}]}]}`,
	"report-status-by-path": `{"items":[]}`,
}

// paths are the values of path parameters.
var paths = map[string]string{
	"tenant": "default", "name": "web", "kind": "person", "subject": "anna", "token": "tok-1", "agent": "prod",
	"target": "tgt-1", "grant": "grt-1", "repository": "rep-1", "run": "run-1", "operation": "opn-1", "project": "42",
}

// names are the values of {name} below collections, and names of single operations.
var names = map[string]string{
	"agents": "prod", "environments": "us", "credentials": "spare", "people": "jane@example.com", "engine-upgrades": "argocd-3", "access-rules": "oncall",
	"delete-deployment": "pod", "rollback-deployment": "pod", "set-images": "pod", "list-images": "pod", "confirm-prune": "pod",
}

// others are the values of path parameters of operations that need another one.
var others = map[string][2]string{
	"revoke-fleet-token": {"token", "tok-spare"}, "revoke-agent-token": {"token", "tok-2"}, "delete-tenant": {"tenant", "empty"},
	"delete-repository": {"repository", "rep-3"}, "dismiss-target": {"target", "tgt-0"},
}

type operationSpec struct {
	OperationID string                `json:"operationId"`
	Security    []map[string][]string `json:"security"`
	RequestBody *struct {
		Required bool
		Content  map[string]any
	} `json:"requestBody"`
	Responses map[string]struct {
		Headers map[string]any
		Content map[string]any
	}
}

// document is the served OpenAPI document, and a validator that others wrote.
type document struct {
	Paths    map[string]map[string]operationSpec
	mu       *sync.Mutex
	compiler *jsonschema.Compiler // guarded by mu
}

func readDocument(t *testing.T, h http.Handler) document {
	t.Helper()
	text := do(t, h, "GET", "/api/v1/openapi.json", "").body
	var doc document
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	doc.mu, doc.compiler = &sync.Mutex{}, jsonschema.NewCompiler()
	doc.compiler.AssertFormat()
	if err := doc.compiler.AddResource("https://kedge.dev/openapi.json", whole); err != nil {
		t.Fatal(err)
	}
	return doc
}

// check validates text against the schema that a pointer into the document leads to.
func (d document) check(text string, pointer ...string) error {
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	url := "https://kedge.dev/openapi.json#"
	for _, part := range pointer {
		url += "/" + escape.Replace(part)
	}
	d.mu.Lock()
	schema, err := d.compiler.Compile(url)
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("compiling %s: %w", url, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	return schema.Validate(value)
}

// checkAnswer finds the declared response and validates against it.
func (d document) checkAnswer(path, method string, op operationSpec, got answer) error {
	code := strconv.Itoa(got.status)
	response, declared := op.Responses[code]
	if !declared && got.status >= 400 {
		code = "default"
		response, declared = op.Responses[code]
	}
	if !declared {
		return fmt.Errorf("status %d is not declared: %s", got.status, got.body)
	}
	for name := range response.Headers {
		if got.status < 300 && name == "Location" && got.header.Get(name) == "" {
			return fmt.Errorf("the header %s is declared and not there", name)
		}
	}
	if len(response.Content) == 0 {
		if got.body != "" {
			return fmt.Errorf("a body is not declared: %s", got.body)
		}
		return nil
	}
	kind, _, err := mime.ParseMediaType(got.header.Get("Content-Type"))
	if err != nil || response.Content[kind] == nil {
		return fmt.Errorf("content type %q is not declared: %s", got.header.Get("Content-Type"), got.body)
	}
	switch kind {
	case "application/json", "application/problem+json":
		return d.check(got.body, "paths", path, method, "responses", code, "content", kind, "schema")
	}
	return nil
}

// call sends a request as an operation describes it.
func call(t *testing.T, h http.Handler, path, method string, op operationSpec, body string, header ...string) answer {
	t.Helper()
	if parts := strings.Split(path, "/{name}"); len(parts) > 1 {
		collection := parts[0][strings.LastIndex(parts[0], "/")+1:]
		name := cmp.Or(names[op.OperationID], names[collection], paths["name"])
		path = strings.Replace(path, "{name}", name, 1)
	}
	if other, ok := others[op.OperationID]; ok {
		path = strings.Replace(path, "{"+other[0]+"}", other[1], 1)
	}
	for name, value := range paths {
		if name == "token" && strings.HasPrefix(path, "/api/v1/cluster/") {
			value = "kedge-agent-right%2Fwith%20a%20slash"
		}
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	if op.OperationID == "webhook" {
		header = append(header, "X-Kedge-Signature", sign(repoSecret, body))
	}
	if len(op.Security) > 0 && len(op.Security[0]["agentToken"]) == 0 && op.Security[0]["agentToken"] != nil {
		header = append([]string{"Authorization", "Bearer " + agentToken}, header...)
	}
	return do(t, h, strings.ToUpper(method), path, body, header...)
}

func forEachOperation(t *testing.T, doc document, fn func(t *testing.T, path, method string, op operationSpec)) {
	t.Helper()
	n := 0
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op := doc.Paths[path][method]
			t.Run(op.OperationID, func(t *testing.T) { fn(t, path, method, op) })
			n++
		}
	}
	if n < 80 {
		t.Errorf("only %d operations are described", n)
	}
}

// loginStub replaces package login, which has its own tests.
type loginStub struct{}

func (loginStub) SessionToken(*http.Request) string { return "" }

func (loginStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answers := map[string]string{
		"config":   `{"oidc":true,"issuer":"https://id.example.com","loginURL":"https://kedge.example.com/api/v1/auth/login"}`,
		"exchange": `{"token":"t","name":"anna","expiresAt":"2026-11-15T12:00:00Z"}`,
	}
	name := strings.TrimPrefix(r.URL.Path, "/api/v1/auth/")
	switch {
	case answers[name] != "":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answers[name]))
	case name == "confirm":
		w.Header().Set("Location", "/")
		w.WriteHeader(http.StatusSeeOther)
	case name == "logout":
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Location", "/")
		w.WriteHeader(http.StatusFound)
	}
}

// ending is the real control, whose streams end soon.
type ending struct{ *control.Service }

func (e ending) Follow(ctx context.Context, p auth.Principal, tenant string, after int64, fn func([]store.Change) error) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return e.Service.Follow(ctx, p, tenant, after, fn)
}

// CreateEngineUpgrade answers without the agents and deployments that an upgrade needs.
func (e ending) CreateEngineUpgrade(context.Context, auth.Principal, string, control.CreateEngineUpgrade) (fleet.EngineUpgrade, error) {
	return engineUpgrade(), nil
}

// covers: T1 (every operation answers as the OpenAPI document says)
func TestEveryOperationAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	cfg := config()
	cfg.Login = loginStub{}
	shared := restapi.New(cfg, ending{newFixture(t).Service})
	doc := readDocument(t, shared)
	forEachOperation(t, doc, func(t *testing.T, path, method string, op operationSpec) {
		t.Parallel()
		h := shared
		if method != "get" { // writes have their own, because they delete
			h = restapi.New(cfg, ending{newFixture(t).Service})
		}
		body := bodies[op.OperationID]
		if op.RequestBody != nil {
			if body == "" {
				t.Fatal("there is no body for it in this test")
			}
			for kind := range op.RequestBody.Content {
				if err := doc.check(body, "paths", path, method, "requestBody", "content", kind, "schema"); err != nil {
					t.Errorf("the request: %v", err)
				}
			}
		}
		got := call(t, h, path, method, op, body)
		if got.status >= 400 {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if err := doc.checkAnswer(path, method, op, got); err != nil {
			t.Error(err)
		}
	})
}

// covers: T6 (every operation answers mistakes with a problem document)
func TestEveryOperationAnswersMistakesAsDescribed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := restapi.New(config(), f)
	before := f.lastChange(t)
	doc := readDocument(t, h)
	mistakes := []struct {
		reason, body string
		header       []string
		want         int
	}{
		{"no token", "{}", []string{"Authorization", ""}, 401},
		{"no JSON", `{"x":`, nil, 400},
		{"an unknown field", `{"frobnicate":1}`, nil, 422},
		{"too much", `{"x":"` + strings.Repeat("a", 1<<20) + `"}`, nil, 413},
	}
	forEachOperation(t, doc, func(t *testing.T, path, method string, op operationSpec) {
		if strings.HasPrefix(path, "/api/v1/auth/") || op.OperationID == "webhook" {
			t.Skip("not a huma operation")
		}
		for _, m := range mistakes {
			if m.want != 401 && op.RequestBody == nil || m.want == 401 && strings.HasSuffix(op.OperationID, "-by-path") {
				continue
			}
			got := call(t, h, path, method, op, m.body, m.header...)
			if got.status != m.want {
				t.Errorf("%s: got %d %.200s, want %d", m.reason, got.status, got.body, m.want)
			}
			if err := doc.checkAnswer(path, method, op, got); err != nil {
				t.Errorf("%s: %v", m.reason, err)
			}
		}
	})
	if after := f.lastChange(t); after != before {
		t.Errorf("something was written: change %d before, %d after", before, after)
	}
}
