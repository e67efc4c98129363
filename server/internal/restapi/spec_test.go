package restapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kedge-dev/kedge/server/internal/restapi"
)

// bodies are what is sent to operations that take one.
var bodies = map[string]string{
	"create-tenant":         `{"name":"shop","quota":{"agents":3}}`,
	"update-tenant":         `{"quota":{"agents":4}}`,
	"suspend-tenant":        `{"reason":"holidays"}`,
	"freeze-fleet":          `{"reason":"holidays"}`,
	"put-member":            `{"role":"viewer"}`,
	"create-token":          `{"name":"ci","role":"deployer","expiresIn":"90d"}`,
	"create-fleet-token":    `{"name":"ci","role":"fleet-admin"}`,
	"enroll-agent":          `{"name":"prod","labels":{"a":"b"},"namespaces":["dude"],"token":"chosen-by-a-person"}`,
	"update-agent":          `{"labels":{},"namespaces":["dude"]}`,
	"create-agent-token":    `{"token":"chosen-by-a-person"}`,
	"create-environment":    `{"name":"eu","matchLabels":{"region":"eu"}}`,
	"update-environment":    `{"agents":[]}`,
	"suspend-environment":   `{}`,
	"create-grant":          `{"environment":"eu","grantee":"shop","limits":{"kinds":["ConfigMap"]}}`,
	"update-grant":          `{"limits":{}}`,
	"create-repository":     `{"url":"https://git.example.com/web","credential":"robot"}`,
	"update-repository":     `{"credential":""}`,
	"create-credential":     `{"name":"robot","kind":"https","username":"robot","secret":"hush"}`,
	"update-credential":     `{"secret":"hush"}`,
	"create-deployment":     `{"name":"web","source":{"repoURL":"https://x/y"}}`,
	"update-deployment":     `{"labels":{"a":"b"},"source":{"path":"p"},"environment":"eu","policy":{"manual":true}}`,
	"suspend-deployment":    `{"reason":"holidays"}`,
	"create-run":            `{"revision":"main"}`,
	"delete-agent-objects":  `{"objects":0}`,
	"dismiss-targets":       `{"agent":"lost"}`,
	"confirm-prune":         `{"objects":["ConfigMap shop/old"],"agent":"prod"}`,
	"rollback-deployment":   `{"revision":9}`,
	"set-agent-config":      `{"repoURL":"https://git.example/config.git"}`,
	"set-gitlab-project":    `{"repoURL":"https://git.example/app.git"}`,
	"set-images":            `{"images":[{"name":"nginx","ref":":1.1"}],"message":"m","branch":"b"}`,
	"update-run":            `{"revision":"v2"}`,
	"webhook":               `{}`,
	"confirm-login":         `{"question":"q","answer":"yes"}`,
	"exchange":              `{"code":"c","verifier":"v"}`,
	"report-status":         `{"items":[{"id":"tgt-1","epoch":1,"generation":4,"sync":"Synced","health":"Current","objects":[{"kind":"ConfigMap","name":"a","sync":"Synced","health":"Current"}]}]}`,
	"report-status-by-path": `{"items":[]}`,
}

// paths are what is put into the holes of paths.
var paths = map[string]string{
	"tenant": "default", "name": "web", "kind": "person", "subject": "anna@example.com", "token": "tok-1", "agent": "prod",
	"target": "tgt-1", "grant": "grt-1", "repository": "rep-1", "run": "run-1", "operation": "opn-1", "project": "group%2Fapp",
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
	compiler *jsonschema.Compiler
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
	doc.compiler = jsonschema.NewCompiler()
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
	schema, err := d.compiler.Compile(url)
	if err != nil {
		return fmt.Errorf("compiling %s: %w", url, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	return schema.Validate(value)
}

// checkAnswer finds the declared response of an answer and validates against it.
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

// call makes a request as an operation describes it.
func call(t *testing.T, h http.Handler, path, method string, op operationSpec, body string, header ...string) answer {
	t.Helper()
	for name, value := range paths {
		if name == "token" && strings.HasPrefix(path, "/api/v1/cluster/") {
			value = "kedge-agent-right%2Fwith%20a%20slash"
		}
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	if op.OperationID == "webhook" {
		header = append(header, "X-Kedge-Signature", sign(secret, body))
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

// loginStub stands for the room of logins, which has tests of its own.
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

// covers: T1 (every operation answers as the OpenAPI document says)
func TestEveryOperationAnswersAsDescribed(t *testing.T) {
	t.Parallel()
	control := newStandin()
	cfg := config()
	cfg.Login = loginStub{}
	h := restapi.New(cfg, fake{standin: control})
	doc := readDocument(t, h)
	forEachOperation(t, doc, func(t *testing.T, path, method string, op operationSpec) {
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
	control := newStandin()
	h := restapi.New(config(), fake{standin: control})
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
			t.Skip("a room, and a signature, of its own")
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
	control.mu.Lock()
	defer control.mu.Unlock()
	if len(control.calls) > 0 {
		t.Errorf("control was called: %v", control.calls)
	}
}
