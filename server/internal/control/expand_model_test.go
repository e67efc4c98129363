package control_test

import (
	"fmt"
	"maps"
	"slices"
)

// model computes the expected fleet without a database: only the selected agents and the previous targets
// count, not the order of events.
type model struct {
	agents      map[string]*modelAgent // by tenant/name
	envs        map[string]modelEnv    // by tenant/name
	grants      map[string]bool        // "owner/env grantee"
	deployments map[string]*modelDeployment
	lost        []string // targets of agents that were deleted, as "tenant/deployment tenant/agent"
}

type modelAgent struct{ label string }

type modelEnv struct {
	agents []string
	label  string // "" matches by name only, or everything when there are no names
}

type modelDeployment struct {
	tenant, name, env string // env is "owner/name"
	prune, heard      bool
	places            map[string]string // by agent, as tenant/name: attached, empty, detached, tombstone
	held              map[string]bool   // agents that were enrolled again and have not reported: they delete nothing
}

func owner(key string) string { return key[:1] }

func (e modelEnv) selects(name, label string) bool {
	if len(e.agents) == 0 && e.label == "" {
		return true
	}
	return slices.Contains(e.agents, name) || e.label != "" && e.label == label
}

// settle moves every target to where it belongs now.
func (m *model) settle() {
	for id, d := range m.deployments {
		env := m.envs[d.env]
		open := owner(d.env) == d.tenant || m.grants[d.env+" "+d.tenant]
		for key, a := range m.agents {
			if owner(key) != owner(d.env) {
				continue
			}
			selected := open && env.selects(key[2:], a.label)
			if selected && d.places[key] == "" {
				m.takeUp(id, key)
			}
			d.move(key, selected, open)
		}
	}
}

// takeUp gives the targets of a deleted agent to the agent with its name.
func (m *model) takeUp(deployment, agent string) {
	if i := slices.Index(m.lost, deployment+" "+agent); i >= 0 {
		m.lost = slices.Delete(m.lost, i, i+1)
		m.deployments[deployment].held[agent] = true
	}
}

func (d *modelDeployment) move(agent string, selected, open bool) {
	was := d.places[agent]
	attached := "empty"
	if d.heard {
		attached = "attached"
	}
	switch {
	case selected:
		d.places[agent] = attached
	case was == "empty":
		delete(d.places, agent)
	case was == "attached" && open && d.prune && !d.held[agent]:
		d.places[agent] = "tombstone"
	case was == "attached":
		d.places[agent] = "detached"
	}
}

// dropAgent deletes an agent: its targets stay listed, detached.
func (m *model) dropAgent(key string) {
	delete(m.agents, key)
	for id, d := range m.deployments {
		if was := d.places[key]; was != "" && was != "empty" {
			m.lost = append(m.lost, id+" "+key)
		}
		delete(d.places, key)
	}
}

func (m *model) dropDeployment(key string) {
	delete(m.deployments, key)
	m.lost = slices.DeleteFunc(m.lost, func(s string) bool { return s[:len(key)+1] == key+" " })
}

// expect is the model as lines to compare.
func (m *model) expect() []string {
	var out []string
	for id, d := range m.deployments {
		for agent, place := range d.places {
			out = append(out, fmt.Sprintf("%s on %s: %s", id, agent, place))
		}
	}
	for _, s := range m.lost {
		out = append(out, s+": lost")
	}
	slices.Sort(out)
	return out
}

// clone is the model for another course of events.
func (m *model) clone() model {
	out := model{
		agents: map[string]*modelAgent{}, envs: maps.Clone(m.envs), grants: maps.Clone(m.grants),
		deployments: map[string]*modelDeployment{}, lost: slices.Clone(m.lost),
	}
	for key, a := range m.agents {
		copied := *a
		out.agents[key] = &copied
	}
	for key, d := range m.deployments {
		copied := *d
		copied.places, copied.held = maps.Clone(d.places), maps.Clone(d.held)
		out.deployments[key] = &copied
	}
	return out
}
