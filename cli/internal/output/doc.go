// Package output prints values in the manner of kubectl: tables, ages, JSON, YAML, JSONPath and names. It knows no
// resource and makes no request.
package output
