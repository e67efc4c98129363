package fleet

// MaxForeignApplications bounds the Applications that an agent lists.
const MaxForeignApplications = 1000

// ForeignApplication is an Application of Argo CD that its agent does not manage. It is only listed.
type ForeignApplication struct {
	Name     string
	Project  string
	RepoURL  string // of its first source, without a user name or password
	Path     string // or the name of a chart
	Revision string // as the Application says: a branch, a tag, a commit, or ""
	// Cluster is the name or the URL of the destination, and Namespace the namespace in it.
	Cluster, Namespace string
	Sync, Health       string // in the words of Argo CD
}

// ForeignApplications are the Applications in the namespace of Argo CD that the agent does not manage.
type ForeignApplications struct {
	Items []ForeignApplication // sorted by name; at most MaxForeignApplications
	Total int                  // how many there are
}
