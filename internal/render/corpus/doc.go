// Package corpus compares what this program renders with what kustomize build and helm template print for
// the same tree on disk: object by object, and failure by failure. It holds tests only. The programs are
// built from their own modules (hack/rendertools) and share nothing with the libraries that are linked
// here; KEDGE_RENDER_TOOLS names the folder that they are in.
//
// Cases are in testdata, several in a file:
//
//	=== what it shows
//	path: overlays/prod
//	-- overlays/prod/kustomization.yaml --
//	resources: [../../base]
//
// A line before the first file is a setting. What a kept difference to the real tool is good for says the
// setting "differs", beside "objects", which names what is rendered here.
package corpus
