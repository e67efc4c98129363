package restapi

import (
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/kedge-dev/kedge/internal/apiv1"
)

// describeLogin adds the login of people to the OpenAPI document. Its handlers are in package login.
func (a *api) describeLogin() {
	schemas := a.huma.OpenAPI().Components.Schemas
	in := func(name, text string) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: text, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	body := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(t, true, t.Name())}}
	}
	add := func(op *huma.Operation, responses map[string]*huma.Response) {
		op.Security = []map[string][]string{{}}
		op.Responses = responses
		op.Responses["default"] = problemResponse(a.huma.OpenAPI(), "The error and its remedy.")
		a.huma.OpenAPI().AddOperation(op)
	}
	there := &huma.Response{Description: "Redirect.", Headers: map[string]*huma.Param{"Location": {Schema: &huma.Schema{Type: huma.TypeString}}}}

	add(&huma.Operation{
		OperationID: "login-config", Method: http.MethodGet, Path: base + "/auth/config", Summary: "How people can log in",
	}, map[string]*huma.Response{"200": {Description: "OK", Content: body(reflect.TypeFor[apiv1.LoginConfig]())}})
	add(&huma.Operation{
		OperationID: "login", Method: http.MethodGet, Path: base + "/auth/login", Summary: "Send a browser to the identity provider",
		Parameters: []*huma.Param{
			in("return", "Where to go afterwards: a path of this server."),
			in("cli", "Port on which a CLI listens on loopback for a one-time code."),
			in("challenge", "With cli: the SHA-256 of its verifier, in unpadded base64url."),
		},
	}, map[string]*huma.Response{"302": there})
	add(&huma.Operation{
		OperationID: "login-callback", Method: http.MethodGet, Path: base + "/auth/callback", Summary: "Where the identity provider sends the browser back to",
		Parameters: []*huma.Param{in("code", "Of the provider."), in("state", "Of the login.")},
	}, map[string]*huma.Response{"302": there, "200": {
		Description: "A page that asks the person whether a CLI may have the session.", Content: map[string]*huma.MediaType{"text/html": {}},
	}})
	add(&huma.Operation{
		OperationID: "confirm-login", Method: http.MethodPost, Path: base + "/auth/confirm", Summary: "What the person answers; sends the browser on to the CLI",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/x-www-form-urlencoded": {Schema: &huma.Schema{
			Type: huma.TypeObject, Required: []string{"question", "answer"}, Properties: map[string]*huma.Schema{
				"question": {Type: huma.TypeString, Description: "Of the page."}, "answer": {Type: huma.TypeString, Enum: []any{"yes", "no"}},
			},
		}}}},
	}, map[string]*huma.Response{"303": there})
	add(&huma.Operation{
		OperationID: "logout", Method: http.MethodPost, Path: base + "/auth/logout", Summary: "End the session of the caller",
	}, map[string]*huma.Response{"204": {Description: "No Content"}})
	add(&huma.Operation{
		OperationID: "exchange", Method: http.MethodPost, Path: base + "/auth/exchange", Summary: "Exchange the one-time code of a CLI login for a session",
		RequestBody: &huma.RequestBody{Required: true, Content: body(reflect.TypeFor[apiv1.Exchange]())},
	}, map[string]*huma.Response{"200": {Description: "OK", Content: body(reflect.TypeFor[apiv1.Session]())}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller is gone if this fails
}
