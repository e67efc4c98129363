// Package kubeapi serves the custom resources of api/v1alpha1: it passes what they declare to control, and writes back
// what control knows about it. It decides nothing.
//
// A namespace is a tenant, by UID. Every call of control acts for one custom resource ([auth.Principal.Owner]), with a role
// in the tenant of its namespace only.
//
// Deletion. Every resource has the finalizer of the server, so a deletion is a deletionTimestamp that the server sees, even
// if it was down. A resource that is just missing (a restored API server, a finalizer removed by hand, a deleted definition)
// deletes nothing: what it created stays and is reported as OwnerMissing.
//
// Concurrency. One replica of the server reconciles at a time. A replica that has lost the lead without noticing does no
// harm: control refuses older generations and other UIDs.
//
// No timers: resources, the Secrets that they name, and the changes of the server are watched. A status is written only if
// it differs.
package kubeapi
