// Package argocd is the engine that has an existing Argo CD apply the targets of an agent. For each target it writes one
// Application, and for each tenant one AppProject, into the namespace of Argo CD. Argo CD fetches and applies; the engine
// mirrors its status.
//
// The revision of an Application is always the exact commit that the server chose, so Argo CD never moves by itself.
//
// Deletion stays with Kedge:
//
//   - Automatic pruning of Argo CD is off. When a sync has succeeded, inventory.Plan decides on the objects that have left
//     the source. One sync operation with prune and exactly these objects deletes what may be deleted. The rest is held.
//   - An Application never has the finalizer of Argo CD that cascades. A deleted Application therefore leaves its objects.
//     A tombstone first deletes the objects that may be deleted, with a sync operation that lists them, and then the
//     Application. Namespaces, CustomResourceDefinitions and PersistentVolumeClaims stay.
//
// The Application is the inventory: its annotations hold the version, the holds and the namespaces, and one write changes
// them together with the spec. The engine changes and deletes only objects with the label of its agent, and always on
// condition that the object is the one that it has read.
//
// For a private repository whose credential the server delivers, the engine writes a Secret of the project, under one of a
// few fixed names. The package must not read or write any other object besides Applications and AppProjects in the namespace
// of Argo CD.
package argocd
