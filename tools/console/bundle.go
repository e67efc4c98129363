package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// modules maps each package that the sources may import to its vendored file. A package that is
// not listed does not resolve, so nothing can slip in from a node_modules folder.
var modules = map[string]string{
	"preact":               "./vendor/preact/preact.mjs",
	"preact/hooks":         "./vendor/preact/hooks.mjs",
	"preact/jsx-runtime":   "./vendor/preact/jsxRuntime.mjs",
	"@preact/signals":      "./vendor/signals/signals.mjs",
	"@preact/signals-core": "./vendor/signals-core/signals-core.mjs",
}

// banner keeps the notice that the licences of the vendored code ask for with the code.
const banner = "/*! Kedge console. Contains Preact and Preact Signals, MIT licence: /assets/licenses.txt */"

// bundle returns the files of the bundle by their slash-separated path.
func bundle(web string) (map[string][]byte, error) {
	root, err := filepath.Abs(web)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", web, err)
	}
	result := api.Build(options(root))
	if len(result.Errors) > 0 || len(result.Warnings) > 0 {
		return nil, messages(result)
	}
	files := map[string][]byte{}
	for _, f := range result.OutputFiles {
		files["assets/"+filepath.Base(f.Path)] = f.Contents
	}
	if files["assets/licenses.txt"], err = licenses(root); err != nil {
		return nil, err
	}
	if files["index.html"], err = page(root, files); err != nil {
		return nil, err
	}
	return files, nil
}

func options(root string) api.BuildOptions {
	return api.BuildOptions{
		AbsWorkingDir:       root,
		EntryPointsAdvanced: []api.EntryPoint{{InputPath: "./src/main.tsx", OutputPath: "app"}},
		EntryNames:          "[name]-[hash]",
		Outdir:              filepath.Join(root, "out"),
		Bundle:              true,
		Format:              api.FormatESModule,
		Target:              api.ES2022,
		MinifyWhitespace:    true,
		MinifyIdentifiers:   true,
		MinifySyntax:        true,
		LegalComments:       api.LegalCommentsInline,
		Banner:              map[string]string{"js": banner},
		Charset:             api.CharsetUTF8,
		Tsconfig:            filepath.Join(root, "tsconfig.json"),
		Alias:               modules,
		PreserveSymlinks:    true,
	}
}

func messages(result api.BuildResult) error {
	all := api.FormatMessages(append(result.Errors, result.Warnings...), api.FormatMessagesOptions{})
	return errors.New("bundling:\n" + strings.Join(all, ""))
}

// licenses joins the licence texts of everything that is vendored.
func licenses(root string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(root, "vendor", "*", "LICENSE"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("finding licences below %q: found %d: %w", root, len(paths), err)
	}
	var out bytes.Buffer
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a licence: %w", err)
		}
		fmt.Fprintf(&out, "== %s ==\n\n%s\n", filepath.Base(filepath.Dir(path)), bytes.TrimSpace(text))
	}
	return out.Bytes(), nil
}

// page fills the names of the script and the style sheet into index.html.
func page(root string, files map[string][]byte) ([]byte, error) {
	html, err := os.ReadFile(filepath.Join(root, "index.html"))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	for path := range files {
		if ext := filepath.Ext(path); ext == ".js" || ext == ".css" {
			html = bytes.ReplaceAll(html, []byte("%app"+ext+"%"), []byte("/"+path))
		}
	}
	if i := bytes.Index(html, []byte("%app.")); i >= 0 {
		return nil, fmt.Errorf("filling the page: nothing for %.12q", html[i:])
	}
	return html, nil
}
