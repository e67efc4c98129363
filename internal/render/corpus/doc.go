// Package corpus compares our renders with the output of kustomize build and helm template for the same tree on
// disk: by object and by failure. It contains only tests. The programs are built from their own modules
// (hack/rendertools) and share nothing with the libraries that are linked here; KEDGE_RENDER_TOOLS is their
// folder.
//
// Cases are in testdata, several in a file:
//
//	=== what it shows
//	path: overlays/prod
//	-- overlays/prod/kustomization.yaml --
//	resources: [../../base]
//
// A line before the first file is a setting. An intended difference from the real tool has the settings
// "differs", with its reason, and "objects", with the objects that Kedge renders.
package corpus
