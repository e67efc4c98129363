package gitsource

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// URLError is returned for an invalid repository URL. It never repeats the URL, which may contain a password.
type URLError struct{ Problem string }

func (e *URLError) Error() string { return e.Problem }

func badURL(format string, args ...any) error {
	return &URLError{Problem: fmt.Sprintf(format, args...)}
}

const maxURL = 2048

var (
	helperURL = regexp.MustCompile(`^[A-Za-z0-9_+.-]+::`)
	userName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	scpURL    = regexp.MustCompile(`^(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):([^:].*)$`)
)

// CheckURL validates a repository URL for the allowed transports and returns its canonical form. It replaces http
// by https if http is not allowed. Errors are of type [*URLError].
func CheckURL(raw string, allow []string) (string, error) {
	raw = strings.TrimSpace(raw)
	switch {
	case raw == "":
		return "", badURL("the URL is empty")
	case len(raw) > maxURL:
		return "", badURL("the URL is longer than %d characters", maxURL)
	case strings.HasPrefix(raw, "-"):
		return "", badURL("the URL begins with a dash")
	case strings.ContainsFunc(raw, isControl):
		return "", badURL("the URL contains white space or control characters")
	case helperURL.MatchString(raw):
		return "", badURL("the URL names a remote helper: use one of %s", schemes(allow))
	}
	if strings.Contains(raw, "://") {
		return checkStandardURL(raw, allow)
	}
	return checkSCP(raw, allow)
}

// SameRepository reports whether two checked URLs are spellings of one repository, as far as their text shows.
// They may differ in transport, user, port, case, and the suffix .git. It cannot detect different names of one
// host.
func SameRepository(a, b string) bool { return canonicalName(a) == canonicalName(b) }

func canonicalName(checked string) string {
	host, name := "", checked
	if u, err := url.Parse(checked); err == nil && strings.Contains(checked, "://") {
		host, name = u.Hostname(), u.Path
	} else if match := scpURL.FindStringSubmatch(checked); match != nil {
		host, name = strings.Trim(match[2], "[]"), match[3]
	}
	name = strings.TrimSuffix(path.Clean("/"+name), ".git")
	if host == "" {
		return name // files are case-sensitive
	}
	return strings.ToLower(strings.TrimSuffix(host, ".") + name)
}

func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
}

func schemes(allow []string) string {
	out := make([]string, 0, len(allow))
	for _, s := range allow {
		out = append(out, s+"://")
	}
	return strings.Join(out, ", ")
}

// checkSCP validates the form git@host:path. It is not converted, because its path is relative to the home
// folder, unlike that of ssh://host/path.
func checkSCP(raw string, allow []string) (string, error) {
	match := scpURL.FindStringSubmatch(raw)
	if match == nil {
		return "", badURL("not a repository URL: use one of %s", schemes(allow))
	}
	user, host, folder := match[1], match[2], strings.TrimRight(match[3], "/")
	switch {
	case folder == "":
		return "", badURL("the URL names no repository")
	case strings.Contains(folder, "@"):
		return "", badURL("the URL contains a password: store it as a credential instead")
	case strings.HasPrefix(folder, "-"):
		return "", badURL("the path of the URL begins with a dash")
	case !slices.Contains(allow, "ssh"):
		return "", badURL("ssh is not allowed: use one of %s", schemes(allow))
	}
	if user != "" {
		user += "@"
	}
	return user + strings.ToLower(host) + ":" + folder, nil
}

func checkStandardURL(raw string, allow []string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// The text of err repeats the URL.
		return "", badURL("not a valid URL")
	}
	if err := checkParts(u); err != nil {
		return "", err
	}
	if u.Scheme == "http" && !slices.Contains(allow, "http") {
		u.Scheme = "https"
		if u.Port() == "80" {
			u.Host = strings.TrimSuffix(u.Host, ":80")
		}
	}
	if !slices.Contains(transports, u.Scheme) || !slices.Contains(allow, u.Scheme) {
		return "", badURL("%s is not allowed: use one of %s", u.Scheme, schemes(allow))
	}
	if err := checkLocation(u); err != nil {
		return "", err
	}
	u.Host = strings.ToLower(u.Host)
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	return u.String(), nil
}

func checkParts(u *url.URL) error {
	if _, hasPassword := u.User.Password(); hasPassword || (u.User != nil && u.Scheme != "ssh") {
		return badURL("the URL contains a user name, token or password: store it as a credential instead")
	}
	if u.User != nil && !userName.MatchString(u.User.Username()) {
		return badURL("the user name in the URL is not valid")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return badURL("a repository URL must not have a query or a fragment")
	}
	if strings.ContainsFunc(u.Path, unicode.IsControl) {
		return badURL("the URL contains control characters")
	}
	return nil
}

func checkLocation(u *url.URL) error {
	folder := strings.Trim(u.Path, "/")
	if u.Scheme == "file" {
		switch {
		case u.Host != "" && u.Host != "localhost":
			return badURL("a file URL has three slashes and no host: file:///srv/repo.git")
		case folder == "":
			return badURL("the URL names no repository")
		}
		u.Host = ""
		return nil
	}
	switch {
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-"):
		return badURL("the URL names no host")
	case folder == "":
		return badURL("the URL names no repository")
	}
	return nil
}
