package imageupdate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/kedge-dev/kedge/internal/imageset"
	"github.com/kedge-dev/kedge/server/internal/auth"
	"github.com/kedge-dev/kedge/server/internal/wording"
)

// imageSummary returns the changes in one line.
func imageSummary(places []imageset.Place) string {
	var changes []string
	for _, p := range places {
		if text := p.Image + " to " + p.New; p.Image != p.New && !slices.Contains(changes, text) {
			changes = append(changes, text)
		}
	}
	switch len(changes) {
	case 1:
		return "set image " + changes[0]
	default:
		return "set " + wording.Count(len(changes), "image")
	}
}

// imageMessage returns the message of a commit: the message of the caller or the changes, with deployment and
// requester.
func imageMessage(c *checkout, req SetImages, places []imageset.Place, p auth.Principal) string {
	var b strings.Builder
	text := strings.TrimSpace(req.Message)
	if text == "" {
		text = c.deployment.Name + ": " + imageSummary(places)
	}
	b.WriteString(text + "\n\n")
	for _, place := range places {
		if place.Image != place.New {
			fmt.Fprintf(&b, "- %s: %s: %s -> %s\n", place.File, place.Field, place.Image, place.New)
		}
	}
	fmt.Fprintf(&b, "\nKedge-Deployment: %s/%s\nKedge-Requested-By: %s\n", c.tenant.Name, c.deployment.Name, oneLine(p.Name))
	return b.String()
}

// oneLine removes line breaks from a name.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// authorEmail returns the name of a person if it is an email address, otherwise the configured address.
func (s *Updater) authorEmail(p auth.Principal) string {
	if strings.Count(p.Name, "@") == 1 && !strings.ContainsAny(p.Name, " <>") {
		return p.Name
	}
	return s.cfg.CommitEmail
}

// editsHash returns a hash of the edits, independent of their base.
func editsHash(edits map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		fmt.Fprintf(h, "%q %x\n", name, sha256.Sum256(edits[name]))
	}
	return hex.EncodeToString(h.Sum(nil))[:10]
}

// proposalURL returns the URL for a pull request on known hosts; "" on others. base is "" for the default
// branch.
func proposalURL(repoURL, base, branch string) string {
	page := webPage(repoURL)
	if page == nil {
		return ""
	}
	host, from, to := strings.ToLower(page.Hostname()), url.PathEscape(branch), url.PathEscape(base)
	query := url.Values{}
	switch {
	case strings.Contains(host, "gitlab"):
		query.Set("merge_request[source_branch]", branch)
		if base != "" {
			query.Set("merge_request[target_branch]", base)
		}
		return page.String() + "/-/merge_requests/new?" + query.Encode()
	case strings.Contains(host, "bitbucket"):
		query.Set("source", branch)
		if base != "" {
			query.Set("dest", base)
		}
		return page.String() + "/pull-requests/new?" + query.Encode()
	case strings.Contains(host, "github"), strings.Contains(host, "gitea"), strings.Contains(host, "forgejo"), strings.Contains(host, "codeberg"):
		if base != "" {
			from = to + "..." + from
		}
		return page.String() + "/compare/" + strings.ReplaceAll(from, "%2F", "/")
	}
	return ""
}

// webPage returns the web page of a repository; nil if its URL does not tell.
func webPage(repoURL string) *url.URL {
	if user, rest, ok := strings.Cut(repoURL, "@"); ok && !strings.Contains(repoURL, "://") && !strings.Contains(user, "/") {
		repoURL = "ssh://" + strings.Replace(rest, ":", "/", 1)
	}
	u, err := url.Parse(repoURL)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	page := &url.URL{Scheme: "https", Host: u.Host, Path: strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git")}
	switch u.Scheme {
	case "ssh":
		page.Host = u.Hostname()
	case "http":
		page.Scheme = "http"
	case "https":
	default:
		return nil
	}
	return page
}
