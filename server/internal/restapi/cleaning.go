package restapi

import (
	"reflect"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// cleanTag marks fields that are not cleaned: secrets, which are checked elsewhere and never shown.
const cleanTag = "plain"

// cleanInput removes control characters from every text of a request: stored text is shown on terminals. Values
// of charts, which are maps of any type, are content and do not change.
func cleanInput(in any) { cleanValue(reflect.ValueOf(in)) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.String:
		if text := v.String(); v.CanSet() && !plaintext.IsPlain(text) {
			v.SetString(plaintext.Text(text, 0))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Tag.Get(cleanTag) != "-" {
				cleanValue(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map:
		cleanMap(v)
	}
}

// cleanMap cleans the texts of a map of texts.
func cleanMap(v reflect.Value) {
	if v.IsNil() || v.Type().Key().Kind() != reflect.String || v.Type().Elem().Kind() != reflect.String {
		return
	}
	for _, key := range v.MapKeys() {
		name, text := key.String(), v.MapIndex(key).String()
		if plaintext.IsPlain(name) && plaintext.IsPlain(text) {
			continue
		}
		v.SetMapIndex(key, reflect.Value{})
		v.SetMapIndex(reflect.ValueOf(plaintext.Text(name, 0)).Convert(v.Type().Key()), reflect.ValueOf(plaintext.Text(text, 0)).Convert(v.Type().Elem()))
	}
}
