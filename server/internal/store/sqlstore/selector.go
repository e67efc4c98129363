package sqlstore

import (
	"strconv"

	"github.com/kedge-dev/kedge/internal/fleet"
)

// selected returns the condition that the labels of a row match a selector. from is the table of the labels,
// called l, joined to the row. The text is the same for all selectors: see the package comment.
//
// A requirement for a value or a key has a number, and for each number one label must be among its
// "N:key=value" and "N:key". A forbidden label is "key=value" or "key". Keys of labels contain no colon and no
// equals sign.
func selected(a *args, s fleet.LabelSelector, from string) string {
	numbers := map[string]string{}
	required, forbidden := []string{}, []string{}
	for i, r := range s {
		number := strconv.Itoa(i)
		switch r.Operator {
		case fleet.LabelIn:
			numbers[number] = number
			for _, value := range r.Values {
				required = append(required, number+":"+r.Key+"="+value)
			}
		case fleet.LabelExists:
			numbers[number] = number
			required = append(required, number+":"+r.Key)
		case fleet.LabelNotIn:
			for _, value := range r.Values {
				forbidden = append(forbidden, r.Key+"="+value)
			}
		case fleet.LabelDoesNotExist:
			forbidden = append(forbidden, r.Key)
		default:
			numbers[number] = number // nothing matches it
		}
	}
	list := a.add(idList(required))
	unwanted := a.add(idList(forbidden))
	return `NOT EXISTS (SELECT 1 FROM json_each(` + a.add(jsonObject(numbers)) + `) AS p WHERE NOT EXISTS (
			SELECT 1 FROM ` + from + ` AND (p.value || ':' || l.key || '=' || l.value IN (SELECT value FROM json_each(` + list + `))
				OR p.value || ':' || l.key IN (SELECT value FROM json_each(` + list + `)))` + perRow + `)` + perRow + `)
		AND NOT EXISTS (SELECT 1 FROM ` + from + ` AND (l.key || '=' || l.value IN (SELECT value FROM json_each(` + unwanted + `))
			OR l.key IN (SELECT value FROM json_each(` + unwanted + `)))` + perRow + `)`
}
