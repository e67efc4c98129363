package restapi

import (
	"reflect"

	"github.com/kedge-dev/kedge/internal/plaintext"
)

// cleanTag marks fields that are kept as they came: secrets, which are checked elsewhere and shown to nobody.
const cleanTag = "plain"

// cleanInput makes every text of a request plain before anybody sees it: what is stored is shown on terminals. Values of
// charts, which are maps of anything, are content and stay as they are.
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
