package manifest

import "bytes"

// ParseCanonical is Parse for one object in canonical form, as [Object.Hash] is of it, and takes a fraction of the time: what is
// in that form is decoded once. It is not ok for anything else, a mistake in the object included; Parse then says what it is.
func ParseCanonical(source string, data []byte) (o Object, ok bool) {
	if len(data) > MaxFile || checkWidth(document{text: data}) != nil {
		return Object{}, false
	}
	value, err := decodeCanonical(data)
	if err != nil {
		return Object{}, false
	}
	content, ok := value.(map[string]any)
	if !ok {
		return Object{}, false
	}
	o = Object{Source: source, Content: content}
	// Compared before the object is identified, which may change it.
	if !bytes.Equal(o.canonical(), data) {
		return Object{}, false
	}
	if _, isList, err := listItems(content); isList || err != nil {
		return Object{}, false
	}
	o.Ref, err = identify(content)
	return o, err == nil
}
