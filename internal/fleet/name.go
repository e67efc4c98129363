package fleet

import "regexp"

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)
)

// CheckName returns an InvalidError unless name is an RFC 1123 label.
func CheckName(field, name string) error {
	if len(name) > 63 || !dnsLabel.MatchString(name) {
		return Invalid(field, "%q is not a valid name: use at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends", name)
	}
	return nil
}

// CheckLabels returns an InvalidError unless labels would be valid on a Kubernetes object.
func CheckLabels(field string, labels map[string]string) error {
	for key, value := range labels {
		if len(key) > 253+1+63 || !labelKey.MatchString(key) {
			return Invalid(field, "%q is not a valid label key", key)
		}
		if len(value) > 63 || !labelValue.MatchString(value) {
			return Invalid(field, "%q is not a valid value of label %q", value, key)
		}
	}
	return nil
}
