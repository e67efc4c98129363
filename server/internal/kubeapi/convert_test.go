package kubeapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kedge-dev/kedge/api/v1alpha1"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/server/internal/control"
)

func TestRefusedTellsErrorsThatAnotherAttemptDoesNotChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want fleet.Reason
	}{
		"no error":             {nil, ""},
		"a database error":     {errors.New("database is locked"), ""},
		"a refusal":            {fmt.Errorf("w: %w", refuse(fleet.ReasonSecretNotFound, "m")), fleet.ReasonSecretNotFound},
		"an owner":             {&control.OwnerError{Reason: fleet.ReasonNameInUse}, fleet.ReasonNameInUse},
		"an invalid field":     {fleet.Invalid("path", "is empty"), fleet.ReasonInvalidSpec},
		"a conflict":           {fleet.Conflict("in use"), fleet.ReasonInUse},
		"an owner in a joined": {errors.Join(&control.OwnerError{Reason: fleet.ReasonResourceRewound}), fleet.ReasonResourceRewound},
	} {
		cause, final := refused(test.err)
		if cause.Reason != test.want || final != (test.want != "") {
			t.Errorf("%s: %+v, %t", name, cause, final)
		}
	}
}

func TestConditionsAreValidForTheAPIServer(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	at := time.Now().Add(-time.Hour)
	setAt(&conditions, 3, "Synced", metav1.ConditionTrue, fleet.Cause{Message: strings.Repeat("ü", maxMessage)}, at)
	c := meta.FindStatusCondition(conditions, "Synced")
	if c.Reason == "" || !utf8.ValidString(c.Message) || c.ObservedGeneration != 3 || !c.LastTransitionTime.Time.Equal(at.Truncate(time.Second)) {
		t.Errorf("%+v", c)
	}
	set(&conditions, 4, "Synced", metav1.ConditionTrue, fleet.Cause{Reason: "Other"})
	if c = meta.FindStatusCondition(conditions, "Synced"); !c.LastTransitionTime.Time.Equal(at.Truncate(time.Second)) || c.Reason != "Other" {
		t.Errorf("a condition with the same status has another transition: %+v", c)
	}
}

func TestDeploymentRequest(t *testing.T) {
	t.Parallel()
	cr := &v1alpha1.GitOpsDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", Labels: map[string]string{"a": "b"}},
		Spec:       v1alpha1.GitOpsDeploymentSpec{Source: v1alpha1.Source{RepoURL: "https://git", Path: "p", TargetRevision: "v1"}, Type: "manual", Suspend: true},
	}
	for name, test := range map[string]struct {
		destination v1alpha1.Destination
		environment string
		namespace   string
	}{
		"none":        {v1alpha1.Destination{}, "", "team"},
		"environment": {v1alpha1.Destination{Environment: "prod"}, "prod", "default"},
		"both":        {v1alpha1.Destination{Environment: "prod", Namespace: "shop"}, "prod", "shop"},
	} {
		cr.Spec.Destination = test.destination
		req := deploymentRequest(cr)
		if req.Environment != test.environment || req.Namespace != test.namespace || !req.Policy.Manual || !req.Policy.Prune || !req.Suspend || req.Source.Revision != "v1" || req.Labels["a"] != "b" {
			t.Errorf("%s: %+v", name, req)
		}
	}
	off := false
	cr.Spec.SyncPolicy = v1alpha1.SyncPolicy{Prune: &off, SyncOptions: []v1alpha1.SyncOption{"CreateNamespace=true"}, OnDetach: "prune", PruneLimit: &v1alpha1.PruneLimit{Objects: 3, Percent: 4}}
	if p := policyOf(cr.Spec); p.Prune || !p.CreateNamespace || !p.PruneOnDetach || p.PruneLimit != (fleet.PruneLimit{Objects: 3, Percent: 4}) {
		t.Errorf("policy %+v", p)
	}
}

func TestVersionChangesWithGenerationAndLabels(t *testing.T) {
	t.Parallel()
	version := func(generation int64, labels map[string]string) specVersion {
		return versionOf(&v1alpha1.GitOpsDeployment{ObjectMeta: metav1.ObjectMeta{Generation: generation, Labels: labels}})
	}
	first := version(1, map[string]string{"a": "b", "c": "d"})
	if first != version(1, map[string]string{"c": "d", "a": "b"}) {
		t.Error("the order of labels changes the version")
	}
	for _, other := range []specVersion{version(2, map[string]string{"a": "b", "c": "d"}), version(1, map[string]string{"a": "b"}), version(1, nil)} {
		if other == first {
			t.Errorf("%+v has the same version", other)
		}
	}
}

// defect: B4
func TestCredentialRequestReadsTheKeysOfTheScheme(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{Data: map[string][]byte{"username": []byte("u"), "password": []byte("p"), "sshPrivateKey": []byte("k"), "knownHosts": []byte("h")}}
	for url, want := range map[string]control.CreateCredential{
		"https://git/a":   {Name: "c", Kind: fleet.CredentialHTTPS, Username: "u", Secret: "p"},
		"ssh://git@git/a": {Name: "c", Kind: fleet.CredentialSSH, Secret: "k", KnownHosts: "h"},
	} {
		cr := &v1alpha1.RepositoryCredential{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1alpha1.RepositoryCredentialSpec{Repository: url}}
		if got, err := credentialRequest(cr, secret); err != nil || got != want {
			t.Errorf("%s: %+v, %v", url, got, err)
		}
		_, err := credentialRequest(cr, &corev1.Secret{})
		if cause, _ := refused(err); cause.Reason != fleet.ReasonSecretInvalid {
			t.Errorf("%s without keys: %v", url, err)
		}
	}
}

func TestValidityHasThreeConditions(t *testing.T) {
	t.Parallel()
	for reason, want := range map[fleet.Reason][2]metav1.ConditionStatus{
		"":                               {metav1.ConditionTrue, metav1.ConditionTrue},
		fleet.ReasonHostUnknown:          {metav1.ConditionFalse, metav1.ConditionUnknown},
		fleet.ReasonRepositoryUnreadable: {metav1.ConditionUnknown, metav1.ConditionUnknown},
		fleet.ReasonCredentialUnusable:   {metav1.ConditionUnknown, metav1.ConditionFalse},
	} {
		cr := &v1alpha1.RepositoryCredential{}
		setValidity(cr, fleet.Cause{Reason: reason})
		for i, kind := range []string{v1alpha1.ConditionValidRepositoryURL, v1alpha1.ConditionValidRepositoryCredential} {
			if c := meta.FindStatusCondition(cr.Status.Conditions, kind); c == nil || c.Status != want[i] {
				t.Errorf("%q: %s is %+v", reason, kind, c)
			}
		}
	}
}

func TestResourcesListProblemsFirst(t *testing.T) {
	t.Parallel()
	object := func(name string, sync fleet.SyncState, health fleet.Health) fleet.ObjectStatus {
		return fleet.ObjectStatus{ObjectRef: fleet.ObjectRef{Kind: "ConfigMap", Name: name}, Sync: sync, Health: health}
	}
	view := control.DeploymentView{Targets: []control.TargetView{{Objects: []fleet.ObjectStatus{
		object("good", fleet.SyncSynced, fleet.HealthCurrent), object("slow", fleet.SyncSynced, fleet.HealthInProgress), object("bad", fleet.SyncFailed, fleet.HealthUnknown),
	}}}}
	got, n := resourcesOf(view)
	if n != 3 || got[0].Name != "bad" || got[1].Name != "slow" || got[2].Name != "good" || got[2].Health.Status != "Healthy" || got[2].Agent != "" {
		t.Errorf("%d: %+v", n, got)
	}
	for range maxResources {
		view.Targets[0].Objects = append(view.Targets[0].Objects, object("more", fleet.SyncSynced, fleet.HealthCurrent))
	}
	if got, n = resourcesOf(view); len(got) != maxResources || n != maxResources+3 {
		t.Errorf("%d of %d objects", len(got), n)
	}
}

func TestAnnotationsBecomeConsents(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason           string
		annotations      map[string]string
		rewound, abandon bool
	}{
		{"none", nil, false, false},
		{"the generation", map[string]string{v1alpha1.AcceptRewound: "3"}, true, false},
		{"another generation", map[string]string{v1alpha1.AcceptRewound: "2"}, false, false},
		{"a lost cluster", map[string]string{v1alpha1.AbandonDeletions: "true"}, false, true},
		{"not a lost cluster", map[string]string{v1alpha1.AbandonDeletions: "false"}, false, false},
	} {
		cr := &v1alpha1.ManagedEnvironment{ObjectMeta: metav1.ObjectMeta{Generation: 3, Annotations: test.annotations}}
		p := principal(fleet.Tenant{ID: "ten-1"}, ownerFor(v1alpha1.KindManagedEnvironment, cr), cr)
		if p.AcceptRewound != test.rewound || p.AbandonDeletions != test.abandon {
			t.Errorf("%s: %+v", test.reason, p)
		}
	}
}
