package imageset

const (
	// minSteps is the budget of every file: small files may repeat much through aliases.
	minSteps = 100_000
	// stepsPerByte is the additional budget for the size of a file. Without aliases, each byte needs two or
	// three steps.
	stepsPerByte = 16
	// bytesPerStep is the number of bytes of text that count as one step.
	bytesPerStep = 16
)

// steps limits the work on one file, counted in visited nodes and keys. Aliases and << let a few bytes expand
// to very many nodes, and some lookups compare every key with all others.
type steps struct{ left int }

// spend consumes steps and returns false if none are left. Then the result is incomplete, and bounded returns
// an error.
func (s *steps) spend(n int) bool {
	s.left = max(s.left-n, -1)
	return s.left >= 0
}

func (s *steps) spent() bool { return s.left < 0 }

// long consumes the steps for building a path.
func (s *steps) long(path string) string {
	s.spend(len(path) / bytesPerStep)
	return path
}

// bounded refuses a file that needed more steps than allowed.
func (f *file) bounded() error {
	if f.spent() {
		return problem(f.path, "it repeats too much by aliases and <<, or is too large, for a search of images: write it out, or split it")
	}
	return nil
}

// grant gives every file a few more steps: each change searches all files.
func (s *search) grant() {
	for _, f := range s.parsed {
		if !f.spent() {
			f.left += minSteps
		}
	}
}
