// Command argocd is the part of Argo CD that tests run: the application controller and the repo server in one binary.
// The name it is called by (argocd-application-controller, argocd-repo-server) chooses the program. As argocd with
// ARGOCD_BINARY_NAME=argocd-git-ask-pass it is the helper that the repo server gives to git for passwords.
package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	gitaskpass "github.com/argoproj/argo-cd/v3/cmd/argocd-git-ask-pass/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/common"
	"github.com/spf13/cobra"
)

func main() {
	programs := map[string]func() *cobra.Command{
		common.CommandApplicationController: controller.NewCommand,
		common.CommandRepoServer:            reposerver.NewCommand,
		common.CommandGitAskPass:            gitaskpass.NewCommand,
	}
	// The repo server sets this variable, because git calls the helper by the name argocd.
	name := cmp.Or(os.Getenv("ARGOCD_BINARY_NAME"), filepath.Base(os.Args[0]))
	program, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "argocd: called as %q: link this binary as argocd-application-controller or argocd-repo-server\n", name)
		os.Exit(2)
	}
	if err := program().Execute(); err != nil {
		os.Exit(1)
	}
}
