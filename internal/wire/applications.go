package wire

import (
	"github.com/kedge-dev/kedge/internal/fleet"
	"github.com/kedge-dev/kedge/internal/wire/agentv1"
)

// maxApplicationText bounds one text of an Application, so that a full list fits into a frame.
const maxApplicationText = 400

// ApplicationsProto returns the message for a list. It shortens long texts.
func ApplicationsProto(l fleet.ForeignApplications) *agentv1.Applications {
	out := &agentv1.Applications{Total: int64(l.Total)}
	text := func(s string) string { return cut(s, maxApplicationText) }
	for _, a := range l.Items[:min(len(l.Items), fleet.MaxForeignApplications)] {
		out.Items = append(out.Items, &agentv1.Application{
			Name: text(a.Name), Project: text(a.Project), RepoUrl: text(a.RepoURL), Path: text(a.Path), Revision: text(a.Revision),
			Cluster: text(a.Cluster), Namespace: text(a.Namespace), Sync: text(a.Sync), Health: text(a.Health),
		})
	}
	return out
}

// ParseApplications converts and validates a list. Names are unique in it.
func ParseApplications(m *agentv1.Applications) (fleet.ForeignApplications, error) {
	out := fleet.ForeignApplications{Total: int(m.GetTotal())}
	if n := len(m.GetItems()); n > fleet.MaxForeignApplications || out.Total < n {
		return fleet.ForeignApplications{}, frameError("%d Applications are listed of %d", n, out.Total)
	}
	seen := map[string]bool{}
	for _, a := range m.GetItems() {
		item := fleet.ForeignApplication{
			Name: a.GetName(), Project: a.GetProject(), RepoURL: a.GetRepoUrl(), Path: a.GetPath(), Revision: a.GetRevision(),
			Cluster: a.GetCluster(), Namespace: a.GetNamespace(), Sync: a.GetSync(), Health: a.GetHealth(),
		}
		if item.Name == "" || seen[item.Name] {
			return fleet.ForeignApplications{}, frameError("the name %q of an Application is empty or not unique", cut(item.Name, maxWord))
		}
		seen[item.Name] = true
		for _, text := range []*string{&item.Name, &item.Project, &item.RepoURL, &item.Path, &item.Revision, &item.Cluster, &item.Namespace, &item.Sync, &item.Health} {
			if len(*text) > maxApplicationText {
				return fleet.ForeignApplications{}, frameError("a text of Application %q is too long", cut(item.Name, maxWord))
			}
			*text = cleanWord(*text)
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}
