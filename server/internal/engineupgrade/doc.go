// Package engineupgrade carries out upgrades of Argo CD: it installs a revision in one instance after another, has each
// upgraded Argo CD sync a canary before the next one starts, and otherwise installs the revision from before again.
//
// Every step is one transaction: the state of the upgrade changes together with the sync run or the desired state that the
// step needs. A server that ends at any point has therefore done a step completely or not at all. One replica leads. If two
// lead for a moment, the number of the step lets only one of them commit.
//
// The package reacts to changes of the change feed. Its only timer is the deadline of an instance.
//
// It must not delete anything. Sync runs install and roll back with the usual prune limit, and the canary is only synced.
package engineupgrade
