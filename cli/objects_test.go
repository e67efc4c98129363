package cli_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

const (
	secretPath = "api/v1/namespaces/shop/secrets/key"
	webPath    = "apis/apps/v1/namespaces/shop/deployments/web"
	eventsPath = "api/v1/namespaces/shop/events"
	liveSecret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"key","namespace":"shop","creationTimestamp":"2026-11-15T12:00:00Z","managedFields":[{"manager":"kedge"}],
		"annotations":{"team":"web","kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"password\":\"open-sesame\"}}"}},
		"data":{"password":"b3Blbi1zZXNhbWU="},"stringData":{"other":"open-sesame"},"type":"Opaque"}`
	liveWeb = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","creationTimestamp":"2026-11-15T12:05:00Z"},"spec":{"replicas":2}}`
)

// kubeEvent is an Event about an object of a group and version.
func kubeEvent(uid, version, kind, name, objectUID, at, message string) string {
	return fmt.Sprintf(`{"metadata":{"name":%[1]q,"uid":%[1]q},"involvedObject":{"apiVersion":%[2]q,"kind":%[3]q,"namespace":"shop","name":%[4]q,"uid":%[5]q},
		"type":"Warning","reason":"BackOff","message":"%[7]s","count":3,"lastTimestamp":%[6]q,"eventTime":null}`, uid, version, kind, name, objectUID, at, message)
}

// covers: O4, P12
func TestLiveObjectsNeverShowSecrets(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "berlin", "paris")
	s.answer("berlin", secretPath, liveSecret)
	s.answer("berlin", webPath, liveWeb)
	s.answer("paris", webPath, "403 no deployments for you")
	s.answer("berlin", eventsPath, `{"items":[`+kubeEvent("e1", "apps/v1", "Deployment", "web", "u", "2026-11-15T12:09:00Z", `slow\u001b[31m`)+`]}`)
	r := run(t, env, "", "get", "objects", "web")
	want := `AGENT    OBJECT                    SYNC     HEALTH    LIVE         AGE   MESSAGE
berlin   Deployment.apps shop/web  Synced   Current   Present      5m
berlin   Secret shop/key           Synced   Current   Present      10m
paris    Deployment.apps shop/web  Synced   Current   Unreadable   -     No deployments for you
paris    Secret shop/key           Synced   Current   NotFound     -
`
	if squeeze(r.out) != squeeze(want) || r.code != 0 {
		t.Errorf("%s", r)
	}
	r = run(t, env, "", "get", "objects", "web", "secret/key", "--agent", "berlin", "-o", "yaml")
	want = `apiVersion: v1
data:
  password: (hidden)
kind: Secret
metadata:
  annotations:
    kubectl.kubernetes.io/last-applied-configuration: (hidden)
    team: (hidden)
  creationTimestamp: "2026-11-15T12:00:00Z"
  name: key
  namespace: shop
stringData:
  other: (hidden)
type: Opaque
`
	if r.out != want || r.code != 0 {
		t.Errorf("%s", r)
	}
	for _, args := range [][]string{{"get", "objects", "web", "-o", "json"}, {"get", "objects", "web", "-o", "jsonpath={..data}{..stringData}{..annotations}"}, {"describe", "object", "web", "Secret/key"}} {
		if r := run(t, env, "", args...); r.code != 0 || !strings.Contains(r.out, "(hidden)") || strings.Contains(r.out, "sesame") || strings.Contains(r.out, "b3Bl") {
			t.Errorf("%v: %s", args, r)
		}
	}
	r = run(t, env, "", "describe", "object", "web", "deployments.apps/shop/web", "--agent", "berlin")
	for _, want := range []string{"Object:  Deployment.apps shop/web\n", "Live:    Present\n", "\n    replicas: 2\n", "  Warning  BackOff  60s  3      slow"} {
		if r.code != 0 || !strings.Contains(r.out, want) || strings.Contains(r.out, "\x1b") {
			t.Errorf("%s\nwant %q", r, want)
		}
	}
	if query, _ := url.ParseQuery(s.query("berlin", eventsPath)); query.Get("fieldSelector") != "involvedObject.name=web,involvedObject.kind=Deployment" {
		t.Errorf("the query is %v", query)
	}
	for _, name := range []string{"Deployment/other", "ConfigMap/key", "Deployment/other/web", "web", "deployment.extensions/web"} {
		if r := run(t, env, "", "describe", "object", "web", name); r.code != 1 || !strings.Contains(r.err, "has no object") {
			t.Errorf("%s: %s", name, r)
		}
	}
	s.answer("paris", secretPath, "403 no secrets for you")
	if r := run(t, env, "", "get", "objects", "web", "--agent", "paris"); r.code != 1 || !strings.Contains(r.err, "the cluster of agent paris cannot be read: no deployments for you") {
		t.Errorf("%s", r)
	}
	s.answer("berlin", secretPath, "500 broken") // the other object is shown
	if r := run(t, env, "", "get", "objects", "web", "--agent", "berlin"); r.code != 0 || !strings.Contains(r.out, "Present") || !strings.Contains(r.out, "Unreadable") || !strings.Contains(r.out, "Broken") {
		t.Errorf("%s", r)
	}
}

// squeeze makes tables comparable without their padding.
func squeeze(table string) string {
	var out []string
	for line := range strings.Lines(table) {
		out = append(out, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(out, "\n")
}

// covers: O4, P12
func TestLiveEventsAreThoseOfTheDeployment(t *testing.T) {
	t.Parallel()
	s, env := newLiveServer(t, "berlin", "lost", "paris")
	s.answer("lost", eventsPath, "503 agent lost is not connected")
	s.pods("berlin", nil, kubePod("web-1-a", "web-1", 0), kubePod("web-2-b", "web-2", 0))
	s.pods("paris", nil)
	s.answer("berlin", eventsPath, `{"metadata":{"resourceVersion":"5"},"items":[`+strings.Join([]string{
		kubeEvent("e1", "v1", "Pod", "web-1-a", "uid-web-1-a", "2026-11-15T12:09:00Z", "of a pod"),
		kubeEvent("e2", "v1", "Pod", "web-2-b", "uid-web-2-b", "2026-11-15T12:09:00Z", "of another deployment"),
		kubeEvent("e3", "apps/v1", "ReplicaSet", "web-1", "uid-web-1", "2026-11-15T12:04:00Z", "of a set"),
		kubeEvent("e4", "apps/v1", "Deployment", "web", "u", "2026-11-15T11:00:00Z", "old"),
		kubeEvent("e5", "v1", "Pod", "web-1-gone", "gone", "2026-11-15T12:09:00Z", "of nothing"),
	}, ",")+`]}`)
	s.answer("paris", eventsPath, `{"items":[`+kubeEvent("e6", "v1", "Secret", "key", "k", "2026-11-15T12:08:00Z", "of a secret")+`]}`)
	r := run(t, env, "", "events", "web", "--live", "--since", "30m")
	want := `LAST SEEN   TYPE   REASON   AGENT   OBJECT   COUNT   MESSAGE
6m Warning BackOff berlin ReplicaSet.apps shop/web-1 3 of a set
2m Warning BackOff paris Secret shop/key 3 of a secret
60s Warning BackOff berlin Pod shop/web-1-a 3 of a pod
`
	if squeeze(r.out) != squeeze(want) || r.code != 0 || !strings.Contains(r.err, "agent lost cannot be read") {
		t.Errorf("%s", r)
	}
	if r := run(t, env, "", "events", "web", "--live", "--agent", "paris", "-o", "jsonpath={.items[*].message}"); r.out != "of a secret\n" && r.out != "of a secret" {
		t.Errorf("%s", r)
	}
	for _, args := range [][]string{{"--live"}, {"web", "--live", "--limit", "3"}, {"web", "--live", "-A"}} {
		if r := run(t, env, "", append([]string{"events"}, args...)...); r.code != 2 {
			t.Errorf("%v: %s", args, r)
		}
	}

	changes := s.stream("berlin", eventsPath)
	follow := startSession(t, env, "events", "web", "--live", "--follow", "--agent", "berlin", "--since", "8m", "--no-headers", "-o", "jsonpath={.message} {.count}{\"\\n\"}")
	follow.want(t, "of a set 3", "of a pod 3")
	changes <- `{"type":"ADDED","object":` + kubeEvent("e7", "v1", "Pod", "web-2-b", "uid-web-2-b", "2026-11-15T12:10:00Z", "of another deployment") + "}\n" +
		`{"type":"MODIFIED","object":` + strings.Replace(kubeEvent("e1", "v1", "Pod", "web-1-a", "uid-web-1-a", "2026-11-15T12:10:00Z", "of a pod"), `"count":3`, `"count":4`, 1) + "}\n"
	follow.want(t, "of a pod 4")

	// After a broken connection, the events are listed again. Those that were printed are not printed again.
	changes <- ""
	changes <- `{"type":"ADDED","object":` + kubeEvent("e8", "v1", "Pod", "web-1-a", "uid-web-1-a", "2026-11-15T12:10:00Z", "new") + "}\n"
	follow.want(t, "new 3")
}
