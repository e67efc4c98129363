package kube

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kedge-dev/kedge/agent/internal/inventory"
	"github.com/kedge-dev/kedge/internal/fleet"
)

func TestClaim(t *testing.T) {
	t.Parallel()
	live := func(target, deployment string, install bool) *metav1.PartialObjectMetadata {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetUID(types.UID("uid-1"))
		obj.SetLabels(map[string]string{})
		if target != "" {
			obj.Labels[LabelTarget] = target
		}
		if install {
			obj.Labels[LabelInstall] = "x"
		}
		if deployment != "" {
			obj.SetAnnotations(map[string]string{AnnotationDeployment: deployment})
		}
		return obj
	}
	inventoryOf := func(agent string) *metav1.PartialObjectMetadata {
		obj := live("", "", false)
		obj.Labels[LabelAgent], obj.Labels[inventory.LabelInventory] = agent, "tgt-b"
		return obj
	}
	cases := []struct {
		reason    string
		live      *metav1.PartialObjectMetadata
		uid       string
		adopt     bool
		abandoned bool
		want      fleet.Reason // of the refusal; "" when there is none
		names     string       // in its message
		adopted   bool
	}{
		{reason: "ours", live: live("me", "", false)},
		{reason: "unknown", live: live("", "", false), want: fleet.ReasonNotAdopted},
		{reason: "unknown, and to be adopted", live: live("", "", false), adopt: true, adopted: true},
		{reason: "ours, with its labels taken off", live: live("", "", false), uid: "uid-1"},
		{reason: "another object under the name of ours", live: live("", "", false), uid: "uid-0", want: fleet.ReasonNotAdopted},
		{reason: "of another deployment", live: live("other", "t/other", false), want: fleet.ReasonOwnedByOther, names: "t/other"},
		{reason: "of another deployment, even with adopt", live: live("other", "t/other", false), adopt: true, want: fleet.ReasonOwnedByOther, names: "t/other"},
		{reason: "of another deployment, even when it was ours", live: live("other", "t/other", false), uid: "uid-1", want: fleet.ReasonOwnedByOther, names: "t/other"},
		{reason: "of another deployment that does not want it any more", live: live("other", "t/other", false), abandoned: true},
		{reason: "released by a deployment of our name", live: live("", "t/app", false)},
		{reason: "released by a deployment of another name", live: live("", "t/other", false), want: fleet.ReasonNotAdopted},
		{reason: "the inventory of any agent", live: inventoryOf("agt-b"), adopt: true, abandoned: true, want: fleet.ReasonOwnInstallation},
		{reason: "of an installation", live: live("me", "t/app", true), adopt: true, abandoned: true, want: fleet.ReasonOwnInstallation},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			me := Owner{Agent: "a", Target: "me", Deployment: "t/app", Adopt: c.adopt}
			adopted, err := me.MayApply(c.live, c.uid, func(fleet.TargetID) bool { return c.abandoned })
			if got := ReasonOf(err, ""); got != c.want || err != nil && !strings.Contains(err.Error(), c.names) {
				t.Errorf("got %v (%s), want %s with %q", err, got, c.want, c.names)
			}
			if adopted != c.adopted {
				t.Errorf("adopted is %t, want %t", adopted, c.adopted)
			}
		})
	}
}
