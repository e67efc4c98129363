package apiv1

// ImageChange asks for an image to be set.
type ImageChange struct {
	Name string `json:"name" minLength:"1" maxLength:"512" doc:"Name of the image without tag, as it is written or in full: nginx is docker.io/library/nginx."`
	Ref  string `json:"ref" minLength:"1" maxLength:"512" doc:"What it becomes: REPOSITORY:TAG, REPOSITORY@DIGEST, :TAG or @DIGEST."`
}

// SetImages asks for images of a deployment to be changed in Git.
type SetImages struct {
	Images  []ImageChange `json:"images" minItems:"1" maxItems:"100" nullable:"false"`
	Message string        `json:"message,omitempty" maxLength:"4096" doc:"Of the commit; when absent it says what changes."`
	Branch  string        `json:"branch,omitempty" maxLength:"255" doc:"A new branch for the commit; when absent it goes to the one that the deployment follows."`
	DryRun  bool          `json:"dryRun,omitempty" doc:"Say what would change, and change nothing."`
}

// ImagePlace is where an image is stated.
type ImagePlace struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Object string `json:"object,omitempty" doc:"Kind and name of the object, in manifests."`
	Field  string `json:"field"`
	Image  string `json:"image" doc:"The whole image as it is."`
	New    string `json:"new,omitempty" doc:"As it becomes."`
	Old    string `json:"old,omitempty" doc:"What the field holds, which may be a part of the image."`
	Text   string `json:"text,omitempty" doc:"What the field becomes."`
	Note   string `json:"note,omitempty"`
	Fixed  string `json:"fixed,omitempty" doc:"Why it cannot be changed in Git."`
}

// ImageUpdate is what came of SetImages.
type ImageUpdate struct {
	Changed   bool         `json:"changed" doc:"A commit was made."`
	Places    []ImagePlace `json:"places" nullable:"false"`
	Base      string       `json:"base" doc:"Commit that was looked at."`
	Commit    string       `json:"commit,omitempty" doc:"That was pushed."`
	Branch    string       `json:"branch" doc:"That holds the change."`
	Protected string       `json:"protected,omitempty" doc:"What the host says of the branch that the deployment follows, when the commit went to another because of it."`
	URL       string       `json:"url,omitempty" doc:"Where a person proposes the branch."`
}

// Images are the images of a deployment as far as its source says them.
type Images struct {
	Commit string       `json:"commit" doc:"That was looked at."`
	Items  []ImagePlace `json:"items" nullable:"false"`
}
