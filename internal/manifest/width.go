package manifest

import "fmt"

// MaxValues limits the values in all objects of one render together. Each value needs up to 70 bytes even if
// its text is short: 20 MiB of "{},{},{},…" would need half a gigabyte in a server that all tenants share. The
// same size of definitions and schemas has about a million values.
const MaxValues = 2_000_000

const (
	// maxIndicators limits the characters that may start a value in one document, before the YAML parser sees
	// it. A value of two bytes costs the parser 250 bytes, so without a limit 5 MiB of "[x,x,x,…" would need
	// half a gigabyte in a server that all tenants share. By default, Kubernetes refuses objects above 1.5 MiB:
	// at the density of the densest JSON that we found, that is 240,000 indicators, at that of definitions and
	// schemas 85,000.
	maxIndicators = 500_000
	// maxDocuments limits the documents of a file. A deployment may have a fifth as many objects.
	maxDocuments = 50_000
	// maxDirectives limits lines like "%TAG" before a document: the YAML parser compares each with all previous
	// ones, which takes minutes for 5 MiB.
	maxDirectives = 100
)

// checkWidth refuses documents with too many values to parse. Indicators inside text count too, because only a
// YAML parser can distinguish them.
func checkWidth(doc document) error {
	if doc.directives > maxDirectives {
		return fmt.Errorf("more than %d YAML directives (lines that begin with %%): remove them", maxDirectives)
	}
	if countIndicators(doc.text) > maxIndicators {
		return fmt.Errorf("too many values for one document (more than %d commas, colons, brackets and dashes): "+
			"split it into documents of one object each", maxIndicators)
	}
	return nil
}

// countIndicators returns at least half the number of values in a document, because values start after an
// indicator: "{a,b}" has two values for each. A dash is an indicator before anything that YAML 1.1 treats as a
// blank, including non-ASCII characters.
func countIndicators(text []byte) int {
	n := 0
	for i, c := range text {
		switch c {
		case ',', ':', '[', '{', '?':
			n++
		case '-':
			if i+1 == len(text) || text[i+1] <= ' ' || text[i+1] >= 0x80 {
				n++
			}
		}
	}
	return n
}

// Values returns the number of values in an object, see MaxValues.
func (o Object) Values() int { return countValues(o.Content) }

// countValues returns the number of values in v, including v.
func countValues(value any) int {
	n := 1
	switch v := value.(type) {
	case map[string]any:
		for _, item := range v {
			n += countValues(item)
		}
	case []any:
		for _, item := range v {
			n += countValues(item)
		}
	}
	return n
}
