package apiv1

// ImageChange sets one image.
type ImageChange struct {
	Name string `json:"name" minLength:"1" maxLength:"512" doc:"Name of the image without tag, as written in the file or in full: nginx is docker.io/library/nginx."`
	Ref  string `json:"ref" minLength:"1" maxLength:"512" doc:"The new reference: REPOSITORY:TAG, REPOSITORY@DIGEST, :TAG, or @DIGEST."`
}

// SetImages is the request to change images of a deployment in Git.
type SetImages struct {
	Images  []ImageChange `json:"images" minItems:"1" maxItems:"100" nullable:"false"`
	Message string        `json:"message,omitempty" maxLength:"4096" doc:"Message of the commit; generated from the changes if absent."`
	Branch  string        `json:"branch,omitempty" maxLength:"255" doc:"A new branch for the commit; the branch of the deployment if absent."`
	DryRun  bool          `json:"dryRun,omitempty" doc:"Report what would change, and change nothing."`
}

// ImagePlace is a place in a file that contains an image reference.
type ImagePlace struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Object string `json:"object,omitempty" doc:"Kind and name of the object, in manifests."`
	Field  string `json:"field"`
	Image  string `json:"image" doc:"The complete current image."`
	New    string `json:"new,omitempty" doc:"The complete new image."`
	Old    string `json:"old,omitempty" doc:"Current value of the field, which may be a part of the image."`
	Text   string `json:"text,omitempty" doc:"New value of the field."`
	Note   string `json:"note,omitempty"`
	Fixed  string `json:"fixed,omitempty" doc:"Why it cannot be changed in Git."`
}

// ImageUpdate is the result of SetImages.
type ImageUpdate struct {
	Changed   bool         `json:"changed" doc:"True if a commit was created."`
	Places    []ImagePlace `json:"places" nullable:"false"`
	Base      string       `json:"base" doc:"The commit that was read."`
	Commit    string       `json:"commit,omitempty" doc:"The commit that was pushed."`
	Branch    string       `json:"branch" doc:"The branch that contains the change."`
	Protected string       `json:"protected,omitempty" doc:"The message of the Git host about its protected branch, if the commit went to another branch for that reason."`
	URL       string       `json:"url,omitempty" doc:"URL at which you can create a pull request for the branch."`
}

// Images lists the images of a deployment that its source contains.
type Images struct {
	Commit string       `json:"commit" doc:"The commit that was read."`
	Items  []ImagePlace `json:"items" nullable:"false"`
}
