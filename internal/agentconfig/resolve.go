package agentconfig

import (
	"errors"
	"net/url"
	"strings"
)

// ErrNoHost says that a path of a project cannot be resolved against the URL of a repository.
var ErrNoHost = errors.New("the URL of the configuration repository names no host")

// ProjectURL is where the project at a path is, on the host of a repository. It is written as that
// repository's own URL is: with .git at the end or without.
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
