package agentconfig

import (
	"errors"
	"net/url"
	"strings"
)

// ErrNoHost is returned if the path of a project cannot be resolved because the repository URL has no host.
var ErrNoHost = errors.New("the URL of the configuration repository has no host")

// ProjectURL returns the URL of a project on the host of a repository. Like the URL of that repository, it ends
// with .git or does not.
func ProjectURL(repository, path string) (string, error) {
	suffix := ""
	if strings.HasSuffix(repository, ".git") {
		suffix = ".git"
	}
	if !strings.Contains(repository, "://") { // git@host:group/app.git
		host, _, ok := strings.Cut(repository, ":")
		if !ok || host == "" || strings.Contains(host, "/") {
			return "", ErrNoHost
		}
		return host + ":" + path + suffix, nil
	}
	u, err := url.Parse(repository)
	if err != nil || u.Host == "" {
		return "", ErrNoHost
	}
	u.Path, u.RawPath, u.RawQuery, u.Fragment = "/"+path+suffix, "", "", ""
	return u.String(), nil
}
