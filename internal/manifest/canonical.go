package manifest

import "bytes"

// ParseCanonical is a fast Parse for one object in canonical form, as defined by [Object.Hash]. ok is false for
// everything else, including an invalid object; Parse then returns the error.
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
	// Compare before identify, which may change the object.
	if !bytes.Equal(o.canonical(), data) {
		return Object{}, false
	}
	if _, isList, err := listItems(content); isList || err != nil {
		return Object{}, false
	}
	o.Ref, err = identify(content)
	return o, err == nil
}
