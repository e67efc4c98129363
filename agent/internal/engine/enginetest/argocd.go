package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kedge-dev/kedge/agent/internal/engine"
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/testkit"
)

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// targetOf returns the target that an object belongs to; "" when it belongs to none. Argo CD marks objects with the name of their
// Application, which has the label of the target.
func (w *world) targetOf(t testing.TB, obj *unstructured.Unstructured) fleet.TargetID {
	t.Helper()
	if w.h.ArgoCD == "" {
		return fleet.TargetID(obj.GetLabels()["kedge.dev/target"])
	}
	name, _, _ := strings.Cut(obj.GetAnnotations()["argocd.argoproj.io/tracking-id"], ":")
	app, err := w.client.Resource(applications).Namespace(w.h.ArgoCD).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatalf("reading the Application of %s: %v", obj.GetName(), err)
	}
	return fleet.TargetID(app.GetLabels()["kedge.dev/target"])
}

// forgetApplications deletes the Applications of an agent, which are its inventory, and none of their objects.
func (w *world) forgetApplications(t *testing.T, agent fleet.AgentID) {
	t.Helper()
	err := w.client.Resource(applications).Namespace(w.h.ArgoCD).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "kedge.dev/agent=" + string(agent)})
	if err != nil {
		t.Fatal(err)
	}
}

// healedFromBefore waits until drift of a ConfigMap with the value 1 is corrected that came while no agent ran. Argo CD corrects it
// then already, without an event.
func (w *world) healedFromBefore(t *testing.T, name string) {
	t.Helper()
	if w.h.ArgoCD == "" {
		w.rec.event(t, fleet.ReasonDriftHealed, "/"+name)
		return
	}
	testkit.Eventually(t, limit, func(ctx context.Context) error {
		obj, err := w.client.Resource(configMaps).Namespace(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err == nil && value(obj, "key") != "1" {
			err = fmt.Errorf("%s is %q", name, value(obj, "key"))
		}
		return err
	})
}

// logApplications logs the Applications of the agent after a failure.
func (w *world) logApplications(t *testing.T) {
	t.Helper()
	if w.h.ArgoCD == "" || !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	list, err := w.client.Resource(applications).Namespace(w.h.ArgoCD).List(ctx, metav1.ListOptions{LabelSelector: "kedge.dev/agent=" + string(w.agent)})
	if err != nil {
		t.Log(err)
		return
	}
	for _, app := range list.Items {
		app.SetManagedFields(nil)
		text, _ := json.MarshalIndent(app.Object, "", " ") // of JSON that was read
		t.Logf("Application %s is\n%s", app.GetName(), text)
	}
}

// asksToPrune reports whether a request has Argo CD delete objects.
func (w *world) asksToPrune(r *http.Request) bool {
	if w.h.ArgoCD == "" || r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/applications/kedge-"+string(w.target)) {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	var app unstructured.Unstructured
	if err := json.NewDecoder(body).Decode(&app.Object); err != nil {
		return false
	}
	prune, _, _ := unstructured.NestedBool(app.Object, "operation", "sync", "prune")
	return prune
}

// finish sets a state and waits until it is Synced.
func (w *world) finish(t *testing.T, e engine.Engine, d engine.Desired) {
	t.Helper()
	e.Set(d)
	w.rec.status(t, d.Target, d.State.Generation, fleet.SyncSynced)
}

// Reasons to skip a case with Argo CD.
const (
	skipAccount     = "policy.serviceAccount is refused, because Argo CD applies with its own permissions"
	skipAdmission   = "Argo CD compares objects with the source, and not with what admission made of them"
	skipAdoption    = "Argo CD takes over objects that no Application tracks, without being asked"
	skipAuthor      = "Argo CD does not tell which fields of an object differ, nor who has changed them"
	skipAway        = "Argo CD corrects drift while no agent runs or the agent is cut off"
	skipCompletion  = "Argo CD creates a Job or Pod again that has completed and is gone"
	skipCrash       = "the tests of the engine kill it at each of its writes"
	skipDefinitions = "Argo CD does not track CustomResourceDefinitions, and never deletes them"
	skipDrift       = "Argo CD corrects drift of whole Applications, and does not know kedge.dev/drift"
	skipDryRun      = "an Application without automated sync is a dry run: Argo CD tells what differs, and no more"
	skipFields      = "Argo CD owns whole objects: it takes over fields of other managers, and does not yield them"

	skipHealth         = "Argo CD decides on the health of objects"
	skipIgnore         = "rules of policy.ignore with a * in a name or a path are refused"
	skipInventory      = "the Application is the inventory, and one write changes it together with the spec"
	skipKeepAnnotation = "the source says that annotations keep an object, not which"
	skipLeft           = "objects that a detached deployment left are tracked for an Application that does not exist any more, which does not tell its deployment: they need adopt"
	skipMarks          = "Argo CD marks objects with its own annotation, not with the labels of Kedge"
	skipNamespace      = "Argo CD does not track the namespaces that it creates"
	skipOneOperation   = "one operation has all deletions, and Argo CD completes it while no agent runs"
	skipOffline        = "there is no bundle to keep: Argo CD continues while the server is unavailable"
	skipOrder          = "Argo CD orders objects by its own annotations"
	skipPace           = "Argo CD decides when it corrects drift"
	skipPermissions    = "Argo CD applies with its own permissions, not with those of the agent"
	skipPods           = "the agent cannot read the pods of a deployment"
	skipReading        = "the agent cannot read the objects of a deployment"
	skipReason         = "Argo CD passes the message of the API server on, without a reason"
	skipReleased       = "the deletion of a deployment releases the objects that it must not delete"
	skipReplace        = "policy.replace is refused"
	skipRequests       = "Argo CD sends the requests for objects, and decides which and how many"
	skipSize           = "hundreds of objects, or a thousand Applications, take Argo CD minutes"
	skipSource         = "this engine applies sources"
	skipTimeout        = "policy.pruneTimeout and policy.readyTimeout are not available"
	skipKindFilter     = "the engine refuses a whole deployment; its own tests change the kind filter with a real Argo CD"
	skipWhole          = "the engine refuses a whole deployment, and Argo CD repeats a failed sync as a whole"
)

// SkippedWithArgoCD has the cases that an engine with Argo CD does not have to pass, each with the reason.
var SkippedWithArgoCD = map[string]string{
	"turns to a newer version at once": skipRequests,
	"deletes nothing when it is killed between two confirmed deletions and told of another bundle":                     skipOneOperation,
	"hands the objects of a declared deployment over to the one that it is renamed to":                                 skipLeft,
	"leaves the replicas to an autoscaler when it takes over from an earlier target":                                   skipFields,
	"releases an object that another deployment took over":                                                             skipMarks,
	"refuses a kind that its filter excludes, and applies the rest":                                                    skipKindFilter,
	"applies a kind of the built-in exclusions only if its filter includes it":                                         skipKindFilter,
	"deletes nothing of a kind that its filter came to exclude, and manages it again later":                            skipKindFilter,
	"deletes nothing of an excluded kind with its deployment, until the filter allows it":                              skipReleased,
	"ends the hold of its filter with a confirmation, and when the object is back in the source":                       skipKindFilter,
	"neither corrects nor restores what its filter excludes":                                                           skipKindFilter,
	"applies with the rights of the deployment's ServiceAccount and no more":                                           skipAccount,
	"compares in a dry run with the rights of the deployment's ServiceAccount and no more":                             skipAccount,
	"compares what has drifted with the rights of the deployment's ServiceAccount and no more":                         skipAccount,
	"deletes nothing with rights that the owner of the cluster does not allow":                                         skipAccount,
	"heals drift with the rights of the deployment's ServiceAccount":                                                   skipAccount,
	"prunes with the rights of the deployment's ServiceAccount and no more":                                            skipAccount,
	"settles where admission changes a declared field at every write":                                                  skipAdmission,
	"settles where admission changes a declared field of what was in place before":                                     skipAdmission,
	"settles where admission gives a declared field another value":                                                     skipAdmission,
	"applies hundreds, and touches nothing foreign, where the list of what is there breaks off":                        skipAdoption,
	"applies hundreds, and touches nothing foreign, where the list of what is there fails":                             skipAdoption,
	"applies hundreds, and touches nothing foreign, where the list of what is there is empty":                          skipAdoption,
	"applies hundreds, and touches nothing foreign, where the list of what is there is forbidden for a while":          skipAdoption,
	"applies hundreds, and touches nothing foreign, where there is more than a list shows":                             skipAdoption,
	"does not take over an object that exists, unless it is told to adopt":                                             skipAdoption,
	"gives back what it has added to an object that somebody else puts there meanwhile":                                skipAdoption,
	"gives that back too where it has looked at the object alone, just before":                                         skipAdoption,
	"says so when it adopts what another tool marks as its own":                                                        skipAdoption,
	"takes nothing of an object that somebody else puts in the place of one that was edited and deleted":               skipAdoption,
	"takes over none of many new objects that somebody else has put there":                                             skipAdoption,
	"takes over none of many new objects that somebody else puts there meanwhile":                                      skipAdoption,
	"leaves a field alone that the policy says to ignore":                                                              skipAuthor,
	"reports a deleted object as missing and does not create it":                                                       skipAuthor,
	"reports after a restart what was changed before it":                                                               skipAuthor,
	"reports drift and does not heal it, until the next version":                                                       skipAuthor,
	"restores a field of a list that is keyed by name":                                                                 skipAuthor,
	"restores a managed field that was edited, and names who did it":                                                   skipAuthor,
	"tells an ignored field from one that is not, of one object":                                                       skipAuthor,
	"goes on by its watches after an outage, reads nothing again and deletes nothing":                                  skipAway,
	"lists again after an outage only where its watch has expired, and deletes nothing":                                skipAway,
	"lists again after an outage when the API server has gone back in time, and deletes nothing":                       skipAway,
	"releases objects after a restart, even if some are missing":                                                       skipAway,
	"does not run a Job again that has completed and gone while the agent was away":                                    skipCompletion,
	"does not run a Job again that has completed and moves to another deployment":                                      skipCompletion,
	"does not run a Job again that has completed and was deleted by its ttl":                                           skipCompletion,
	"does not run a Pod again that has succeeded and is gone":                                                          skipCompletion,
	"leaves a completed Job alone that is deleted by hand, and creates one again that had work left":                   skipCompletion,
	"mends what a kill at any request has left":                                                                        skipCrash,
	"keeps a confirmed CustomResourceDefinition while anybody has an object of it":                                     skipDefinitions,
	"prunes a custom resource and keeps its definition":                                                                skipDefinitions,
	"lets an object say itself what is done about drift":                                                               skipDrift,
	"applies what a dry run has shown when that is turned off":                                                         skipDryRun,
	"compares again in a dry run when an object is changed":                                                            skipDryRun,
	"says what would change in a dry run, and writes nothing":                                                          skipDryRun,
	"shows a dry run of a namespace and a kind that come with the bundle":                                              skipDryRun,
	"shows in a dry run what would be deleted, and what would be kept":                                                 skipDryRun,
	"shows in a dry run what would fail":                                                                               skipDryRun,
	"leaves the replicas to an autoscaler even when the policy says force":                                             skipFields,
	"reports a conflict over a field that it never applied, also after a restart":                                      skipFields,
	"reports a conflict with the field and the other manager":                                                          skipFields,
	"takes a field over from another manager when the policy says force, and says so":                                  skipFields,
	"yields the replicas to an autoscaler and restores them from a person":                                             skipFields,
	"ignores drift, until the next version":                                                                            skipHealth,
	"reads the health of a custom kind by the expressions in its annotations":                                          skipHealth,
	"reads the health of a custom kind from its conditions":                                                            skipHealth,
	"says of a custom resource that is being deleted what that waits for, and creates it again":                        skipHealth,
	"shows an object whose finalizer hangs, and goes on when it is gone":                                               skipHealth,
	"leaves a field of all items of a list alone, and an annotation":                                                   skipIgnore,
	"sends a field that is ignored when it creates the object":                                                         skipIgnore,
	"sends a new item of a list with what is ignored of it, and drops one with it":                                     skipIgnore,
	"asks nothing of the cluster when a bundle has not changed":                                                        skipInventory,
	"calls a recovery done only when what it holds is written down":                                                    skipInventory,
	"deletes no part of its own installation when limited to namespaces, whatever the inventory says":                  skipInventory,
	"deletes no part of its own installation, whatever the inventory says":                                             skipInventory,
	"deletes nothing when the inventory is damaged, and says so":                                                       skipInventory,
	"deletes nothing when the inventory is lost":                                                                       skipInventory,
	"does not apply before the inventory is written":                                                                   skipInventory,
	"ends as without a kill when it is told the same again after a kill before any answer":                             skipInventory,
	"ends as without a kill when it is told the same again after a kill before any request":                            skipInventory,
	"stops when another replica of the agent is ahead, and goes on with something newer":                               skipInventory,
	"writes its inventory once for many that are created again, and knows them after a restart":                        skipInventory,
	"keeps what other tools have marked to be kept when it leaves the source":                                          skipKeepAnnotation,
	"keeps what other tools have marked when the deployment is deleted, and says why":                                  skipKeepAnnotation,
	"keeps what was applied with a mark although the mark was taken off since":                                         skipKeepAnnotation,
	"shows in a dry run that what is marked would be kept":                                                             skipKeepAnnotation,
	"applies every object and reports the health of each":                                                              skipMarks,
	"deletes nothing when the agent is killed while it releases objects":                                               skipMarks,
	"does not delete an object that was given to somebody else":                                                        skipMarks,
	"goes on with a target that the server gave to the same agent enrolled again":                                      skipMarks,
	"keeps its marks whatever the policy says to ignore":                                                               skipMarks,
	"reports an object that cannot be released, and tries again":                                                       skipMarks,
	"restores its labels when somebody takes them off":                                                                 skipMarks,
	"watches what is as it was applied by the agent that it was before it was enrolled again":                          skipMarks,
	"creates the namespace of a deployment that asks for it, and keeps it afterwards":                                  skipNamespace,
	"holds a created namespace that the policy no longer asks for":                                                     skipNamespace,
	"leaves a namespace alone that exists already, whoever has it":                                                     skipNamespace,
	"does not wait to be told that an older state is kept":                                                             skipOffline,
	"prunes nothing before a state is kept":                                                                            skipOffline,
	"writes nothing down and takes nothing on before a state is kept":                                                  skipOffline,
	"applies a custom resource of a later wave when its definition is established":                                     skipOrder,
	"applies an object when what it depends on is ready":                                                               skipOrder,
	"begins a wave when the one before it is ready":                                                                    skipOrder,
	"goes on with a later wave after a restart, and applies nothing twice":                                             skipOrder,
	"goes on with what depends on nothing that is waited for":                                                          skipOrder,
	"heals drift while a later wave waits, and delays no other target":                                                 skipOrder,
	"prunes after all waves are in place, in their reverse order":                                                      skipOrder,
	"prunes in the reverse order of waves after a restart":                                                             skipOrder,
	"refuses an order that cannot be kept":                                                                             skipOrder,
	"says that a wave waits for an object that was refused":                                                            skipOrder,
	"says which object is not ready in time, and goes on when it is":                                                   skipOrder,
	"turns at once from a revision that never gets ready to its fix":                                                   skipOrder,
	"asks nothing of the cluster when nothing changes, whatever its targets wait for":                                  skipPace,
	"restores an edit in no more than ten times what is promised":                                                      skipPace,
	"restores less and less often what something else keeps changing, and other objects at once":                       skipPace,
	"fails an object that RBAC forbids by its name, and heals when the Role is granted":                                skipPermissions,
	"goes on deleting an object that nobody watches when something newer arrives":                                      skipPermissions,
	"goes on where it may watch nothing, and says so":                                                                  skipPermissions,
	"watches single namespaces where it may not watch all":                                                             skipPermissions,
	"does not repeat itself while a container crashes again and again":                                                 skipPods,
	"names the pods of an unready workload with their reasons and events":                                              skipPods,
	"says nothing of pods that it may not read, and fails nothing":                                                     skipPods,
	"says why a workload has no pods at all":                                                                           skipPods,
	"says why the pods of a workload are not scheduled":                                                                skipPods,
	"ends a deleted deployment whose held object somebody deletes":                                                     skipReading,
	"names a held object of a deleted deployment again when reading it failed after a restart":                         skipReading,
	"keeps a confirmed Namespace while another agent has something in it":                                              skipReading,
	"keeps a confirmed Namespace while it cannot be told what is in it":                                                skipReading,
	"keeps an object that is annotated to be kept, until it is not":                                                    skipReading,
	"fails a change of an immutable field clearly, and leaves the object alone":                                        skipReason,
	"deletes nothing outside its namespaces":                                                                           skipReleased,
	"deletes nothing that the owner of the cluster forbids to touch":                                                   skipReleased,
	"releases nothing outside its namespaces, and reports it":                                                          skipReleased,
	"creates an object again after a kill in the middle of replacing it":                                               skipReplace,
	"does not delete an object that could not be created again":                                                        skipReplace,
	"does not replace a StatefulSet whose claims would be deleted with it":                                             skipReplace,
	"does not replace what a rule of its definition refuses to have changed":                                           skipReplace,
	"does not replace what an admission policy refuses to have changed":                                                skipReplace,
	"does not replace where the owner of the cluster forbids deletions":                                                skipReplace,
	"finds out that a field is immutable whatever words the API server uses":                                           skipReplace,
	"never replaces a protected kind":                                                                                  skipReplace,
	"refuses each part of its own installation when limited to namespaces":                                             skipReplace,
	"refuses each part of its own installation, and nothing else of the bundle":                                        skipReplace,
	"replaces an object whose immutable field changes, when the policy says so":                                        skipReplace,
	"waits until an object that is replaced is gone":                                                                   skipReplace,
	"acknowledges a detach of something it does not hold":                                                              skipRequests,
	"acknowledges a tombstone of something it does not hold":                                                           skipRequests,
	"applies many new objects without reading each of them":                                                            skipRequests,
	"applies the others while an admission webhook does not answer for one object":                                     skipRequests,
	"deletes users before what they use":                                                                               skipRequests,
	"does not correct drift of released objects":                                                                       skipRequests,
	"ends as it should, and deletes nothing wrongly, where a webhook refuses applies for a while":                      skipRequests,
	"ends as it should, and deletes nothing wrongly, where applies are answered with 503":                              skipRequests,
	"ends as it should, and deletes nothing wrongly, where applies are slow":                                           skipRequests,
	"ends as it should, and deletes nothing wrongly, where deletions are answered with 500":                            skipRequests,
	"ends as it should, and deletes nothing wrongly, where discovery is down":                                          skipRequests,
	"ends as it should, and deletes nothing wrongly, where discovery knows no kind":                                    skipRequests,
	"ends as it should, and deletes nothing wrongly, where lists are answered with 500":                                skipRequests,
	"ends as it should, and deletes nothing wrongly, where lists are empty although there is something":                skipRequests,
	"ends as it should, and deletes nothing wrongly, where lists break off in the middle":                              skipRequests,
	"ends as it should, and deletes nothing wrongly, where the answers to applies are lost":                            skipRequests,
	"ends as it should, and deletes nothing wrongly, where the answers to deletions are lost":                          skipRequests,
	"ends as it should, and deletes nothing wrongly, where the inventory cannot be written once something was deleted": skipRequests,
	"ends as it should, and deletes nothing wrongly, where the quota is exceeded for a while":                          skipRequests,
	"leaves nothing behind when the API server does not serve a kind for a moment":                                     skipRequests,
	"looks at many hundreds of new objects as their turn comes, not all at the start":                                  skipRequests,
	"looks at many new objects when their wave begins, not before":                                                     skipRequests,
	"measures it so when it is restarted, or told of something newer, in the middle":                                   skipRequests,
	"notices drift, and deletes nothing wrongly, where the list of its objects breaks off":                             skipRequests,
	"notices drift, and deletes nothing wrongly, where the list of its objects fails":                                  skipRequests,
	"notices drift, and deletes nothing wrongly, where the list of its objects is empty":                               skipRequests,
	"notices drift, and deletes nothing wrongly, where the list of its objects is empty and of now":                    skipRequests,
	"notices drift, and deletes nothing wrongly, where the list of its objects is forbidden for a while":               skipRequests,
	"registers a webhook after what it would hold back, and removes it first":                                          skipRequests,
	"retries an object that failed, and leaves the others alone":                                                       skipRequests,
	"says nothing of a lookup that something newer has ended":                                                          skipRequests,
	"sends one PATCH when one object has changed":                                                                      skipRequests,
	"takes a list when the stream of what is there at first breaks off, and does not ask for it again and again":       skipRequests,
	"writes down that a deployment is deleted before it deletes the first object":                                      skipRequests,
	"carries a deployment of many hundreds of objects":                                                                 skipSize,
	"carries a thousand deployments":                                                                                   skipSize,
	"refuses a source after a restart as well, and deletes nothing":                                                    skipSource,
	"refuses a source that others would have to apply, and leaves what is there as it is":                              skipSource,
	"says so when a deletion takes longer than is allowed, and goes on when it is done":                                skipTimeout,
	"deletes nothing beyond limits that were narrowed, and releases it with the deployment":                            skipWhole,
	"fails an object of an unknown kind alone, and applies it when the kind arrives":                                   skipWhole,
	"fails the object that admission denies with the policy's words, and applies the others":                           skipWhole,
	"fails the object that an admission webhook denies in the webhook's words, and applies the others":                 skipWhole,
	"never touches its own installation":                                                                               skipWhole,
	"prunes nothing while an object fails, and says so":                                                                skipWhole,
	"refuses a deployment that names no ServiceAccount where the owner of the cluster requires one":                    skipWhole,
	"refuses a kind that the owner of the cluster forbids, and applies the rest":                                       skipWhole,
	"refuses other namespaces and cluster-scoped kinds when limited to namespaces":                                     skipWhole,
	"refuses what is beyond the limits of a grant, and applies the rest":                                               skipWhole,
	"refuses what was on its way when the owner of the cluster came to forbid it":                                      skipWhole,
}
