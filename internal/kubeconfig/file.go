package kubeconfig

import "go.yaml.in/yaml/v3"

// file is a kubeconfig with all fields of its API, apiVersion v1. Fields that are not listed are errors.
type file struct {
	Kind        string         `yaml:"kind"`
	APIVersion  string         `yaml:"apiVersion"`
	Preferences yaml.Node      `yaml:"preferences"`
	Extensions  yaml.Node      `yaml:"extensions"`
	Clusters    []namedCluster `yaml:"clusters"`
	Users       []namedUser    `yaml:"users"`
	Contexts    []namedContext `yaml:"contexts"`
	Current     string         `yaml:"current-context"`
}

type namedCluster struct {
	Name    string  `yaml:"name"`
	Cluster cluster `yaml:"cluster"`
}

type cluster struct {
	Server             string    `yaml:"server"`
	ServerName         string    `yaml:"tls-server-name"`
	Insecure           bool      `yaml:"insecure-skip-tls-verify"`
	CAFile             string    `yaml:"certificate-authority"`
	CAData             string    `yaml:"certificate-authority-data"`
	ProxyURL           string    `yaml:"proxy-url"`
	DisableCompression bool      `yaml:"disable-compression"`
	Extensions         yaml.Node `yaml:"extensions"`
}

type namedUser struct {
	Name string `yaml:"name"`
	User user   `yaml:"user"`
}

type user struct {
	CertificateFile string              `yaml:"client-certificate"`
	CertificateData string              `yaml:"client-certificate-data"`
	KeyFile         string              `yaml:"client-key"`
	KeyData         string              `yaml:"client-key-data"`
	Token           string              `yaml:"token"`
	TokenFile       string              `yaml:"tokenFile"`
	As              string              `yaml:"as"`
	AsUID           string              `yaml:"as-uid"`
	AsGroups        []string            `yaml:"as-groups"`
	AsExtra         map[string][]string `yaml:"as-user-extra"`
	Username        string              `yaml:"username"`
	Password        string              `yaml:"password"`
	AuthProvider    yaml.Node           `yaml:"auth-provider"`
	Exec            yaml.Node           `yaml:"exec"`
	Extensions      yaml.Node           `yaml:"extensions"`
}

type namedContext struct {
	Name    string      `yaml:"name"`
	Context contextSpec `yaml:"context"`
}

type contextSpec struct {
	Cluster    string    `yaml:"cluster"`
	User       string    `yaml:"user"`
	Namespace  string    `yaml:"namespace"`
	Extensions yaml.Node `yaml:"extensions"`
}
