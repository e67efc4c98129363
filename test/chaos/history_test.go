package chaos_test

import (
	"fmt"
	"maps"
	"strings"
)

// Names contain their owner, so that misplaced objects are visible:
//
//	tenant      alpha
//	agent       alpha-1
//	deployment  alpha-web
//	folder      alpha-web-3      the source of a deployment; never used for another one
//	object      alpha-web-3-c7   a ConfigMap of that folder

func tenantOf(name string) string {
	tenant, _, _ := strings.Cut(name, "-")
	return tenant
}

func folderOf(object string) string { return object[:max(0, strings.LastIndex(object, "-"))] }

// content is the content of a folder, or its state in a cluster: values by object name. Every value is used
// once, so that equal contents come from the same commits.
type content map[string]string

// folder is a folder of a repository at one commit.
type folder struct {
	objects content
	broken  bool // one of its files cannot be read
}

// good reports whether it can be rendered. An empty folder is an error: invariant 5.
func (f folder) good() bool { return !f.broken && len(f.objects) > 0 }

func (f folder) clone() folder { return folder{objects: maps.Clone(f.objects), broken: f.broken} }

// files returns the files of a commit that changes the folder from before to f.
func (f folder) files(name string, before folder, deleted string) map[string]string {
	out := map[string]string{}
	for object, value := range f.objects {
		if before.objects[object] != value {
			out[name+"/"+object+".yaml"] = fmt.Sprintf(
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q}\n", object, value)
		}
	}
	for object := range before.objects {
		if _, ok := f.objects[object]; !ok {
			out[name+"/"+object+".yaml"] = deleted
		}
	}
	switch {
	case f.broken && !before.broken:
		out[name+"/broken.yaml"] = "a: [\n"
	case before.broken && !f.broken:
		out[name+"/broken.yaml"] = deleted
	}
	return out
}

// history is a repository, commit by commit. Its head is the last pushed one.
type history struct {
	commits []map[string]folder
	serial  int // of objects, folders and values
}

func newHistory() *history { return &history{commits: []map[string]folder{{}}} }

func (h *history) next() int {
	h.serial++
	return h.serial
}

func (h *history) head() map[string]folder { return h.commits[len(h.commits)-1] }

// add creates the next commit: the head with one folder changed.
func (h *history) add(name string, f folder) {
	next := maps.Clone(h.head())
	next[name] = f.clone()
	h.commits = append(h.commits, next)
}

// first and last return the oldest and the newest commit at which a folder declared just this, and −1
// when none did.
func (h *history) first(name string, c content) int {
	for i := range h.commits {
		if f, ok := h.commits[i][name]; ok && f.good() && maps.Equal(f.objects, c) {
			return i
		}
	}
	return -1
}

func (h *history) last(name string, c content) int {
	for i := len(h.commits) - 1; i >= 0; i-- {
		if f, ok := h.commits[i][name]; ok && f.good() && maps.Equal(f.objects, c) {
			return i
		}
	}
	return -1
}

// gaveUp reports whether a valid commit after a given one no longer lists an object.
func (h *history) gaveUp(object string, after int) bool {
	name := folderOf(object)
	for _, commit := range h.commits[min(after+1, len(h.commits)):] {
		if f, ok := commit[name]; ok && f.good() {
			if _, listed := f.objects[object]; !listed {
				return true
			}
		}
	}
	return false
}
