package sqlstore

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kedge-dev/kedge/internal/fleet"
)

const (
	// minSuffix and maxSuffix limit the length of index entries, in bytes: one letter matches nearly
	// everything, and the row is checked for what follows the sixteenth.
	minSuffix = 2
	maxSuffix = 16
	// afterAll is appended to a prefix for the end of its range.
	afterAll = "\U0010FFFF"
)

// words splits a text at everything that is neither letter nor digit. Non-ASCII characters count as letters.
func words(text string) []string {
	return strings.FieldsFunc(lowerASCII(text), func(r rune) bool {
		return r < utf8.RuneSelf && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// suffixes returns all suffixes of all words of the texts, sorted, without duplicates.
func suffixes(texts ...string) []string {
	var out []string
	for _, text := range texts {
		for _, word := range words(text) {
			for i := range word {
				if len(word)-i >= minSuffix {
					out = append(out, cut(word[i:]))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cut limits a suffix without splitting a character.
func cut(s string) string {
	if len(s) <= maxSuffix {
		return s
	}
	n := maxSuffix
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// pieces returns the parts of a search that can be looked up: every match has, for each piece, a word that
// contains it. It returns none if nothing can be looked up.
func pieces(search string) []string {
	var out []string
	for _, word := range words(search) {
		if len(word) >= minSuffix {
			out = append(out, cut(word))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// wordIndex is one of the tables of suffixes.
type wordIndex struct{ insert, remove string }

var (
	deploymentWords = wordIndex{
		insert: `INSERT INTO deployment_words (tenant_id, deployment_id, suffix) VALUES ` + wordRows + ` ON CONFLICT DO NOTHING`,
		remove: `DELETE FROM deployment_words WHERE tenant_id = $1 AND deployment_id = $2 AND suffix IN (SELECT value FROM json_each($3))`,
	}
	repositoryWords = wordIndex{
		insert: `INSERT INTO repository_words (tenant_id, repository_id, suffix) VALUES ` + wordRows + ` ON CONFLICT DO NOTHING`,
		remove: `DELETE FROM repository_words WHERE tenant_id = $1 AND repository_id = $2 AND suffix IN (SELECT value FROM json_each($3))`,
	}
)

// wordBatch rows go into one statement.
const (
	wordBatch = 8
	wordRows  = `($1, $2, $3), ($1, $2, $4), ($1, $2, $5), ($1, $2, $6), ($1, $2, $7), ($1, $2, $8), ($1, $2, $9), ($1, $2, $10)`
)

func (x wordIndex) add(ctx context.Context, tx *Tx, tenant fleet.TenantID, id string, list []string) error {
	for batch := range slices.Chunk(list, wordBatch) {
		args := []any{tenant, id}
		for i := range wordBatch {
			args = append(args, batch[min(i, len(batch)-1)]) // repeat the last one: an existing row is skipped
		}
		if _, err := tx.of(tenant).exec(ctx, x.insert, args...); err != nil {
			return err
		}
	}
	return nil
}

// drop removes suffixes that the caller computes from the old text.
func (x wordIndex) drop(ctx context.Context, tx *Tx, tenant fleet.TenantID, id string, list []string) error {
	if len(list) == 0 {
		return nil
	}
	_, err := tx.of(tenant).exec(ctx, x.remove, tenant, id, idList(list))
	return err
}
