package inventory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// Store finds the inventories of an agent. configMaps are the ConfigMaps in the namespace of the agent.
type Store struct {
	configMaps dynamic.ResourceInterface
}

// NewStore returns a Store. It does no I/O.
func NewStore(configMaps dynamic.ResourceInterface) *Store {
	return &Store{configMaps: configMaps}
}

// New returns an empty inventory for a target. Nothing is written before Save.
func (s *Store) New(agent fleet.AgentID, target fleet.TargetID) *Inventory {
	return newInventory(s.configMaps, agent, target)
}

// Load reads every inventory in the namespace, of any agent, in the order of their targets. A chunk that cannot be read
// makes its inventory damaged; that is no error.
func (s *Store) Load(ctx context.Context) ([]*Inventory, error) {
	items, err := list(ctx, s.configMaps, LabelInventory)
	if err != nil {
		return nil, err
	}
	inventories := map[fleet.TargetID]*Inventory{}
	for i := range items {
		labels := items[i].GetLabels()
		target := fleet.TargetID(labels[LabelInventory])
		if target == "" {
			continue
		}
		if inventories[target] == nil {
			inventories[target] = newInventory(s.configMaps, fleet.AgentID(labels[LabelAgent]), target)
		}
		inventories[target].read(&items[i])
		// An inventory whose change of the agent was not written completely has both labels.
		inventories[target].relabel = inventories[target].relabel || inventories[target].agent != fleet.AgentID(labels[LabelAgent])
	}
	out := make([]*Inventory, 0, len(inventories))
	for _, target := range slices.Sorted(maps.Keys(inventories)) {
		inventories[target].complete()
		out = append(out, inventories[target])
	}
	return out, nil
}

// Holds reports whether agent has any inventory in the namespace.
func (s *Store) Holds(ctx context.Context, agent fleet.AgentID) (bool, error) {
	found, err := s.configMaps.List(ctx, metav1.ListOptions{LabelSelector: LabelInventory + "," + LabelAgent + "=" + string(agent), Limit: 1})
	if err != nil {
		return false, fmt.Errorf("looking for the inventory of %s: %w", agent, err)
	}
	return len(found.Items) > 0, nil
}

// list reads all chunks that selector selects, page by page: they may be large.
func list(ctx context.Context, configMaps dynamic.ResourceInterface, selector string) ([]unstructured.Unstructured, error) {
	var items []unstructured.Unstructured
	options := metav1.ListOptions{LabelSelector: selector, Limit: 100}
	for {
		page, err := configMaps.List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("listing the inventory: %w", err)
		}
		items = append(items, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return items, nil
		}
	}
}
