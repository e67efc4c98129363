package manifest

import "fmt"

// MaxValues bounds the values in all objects of one render together, which take up to 70 bytes each however short they
// are as text: 20 MiB of "{},{},{},…" would be half a gigabyte, in a server that renders for everybody. As much of
// definitions and schemas has about a million.
const MaxValues = 2_000_000

const (
	// maxIndicators bounds what may begin a value in one document, before the YAML parser sees it:
	// a value of two bytes costs it 250, so without a bound 5 MiB of "[x,x,x,…" are half a
	// gigabyte in a server that renders for everybody. By default Kubernetes takes no object above
	// 1.5 MiB: at the density of the densest JSON that we found that is 240,000 of them, at that of
	// definitions and schemas 85,000.
	maxIndicators = 500_000
	// maxDocuments bounds the documents of a file. A deployment may have a fifth as many objects.
	maxDocuments = 50_000
	// maxDirectives bounds the lines like "%TAG" before a document: the YAML parser compares each
	// with all before it, which for 5 MiB of them takes minutes.
	maxDirectives = 100
)

// checkWidth refuses documents that are of too many values to parse. Indicators inside text count
// too: to tell them apart takes a YAML parser.
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

// countIndicators is never less than half the number of values in a document, which begin after
// an indicator: "{a,b}" has two values for each. A dash is one before anything that YAML 1.1 takes
// for a blank, of which some are not ASCII.
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

// Values returns how many values there are in an object, see MaxValues.
func (o Object) Values() int { return countValues(o.Content) }

// countValues returns how many values there are in one, itself among them.
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
