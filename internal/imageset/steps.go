package imageset

const (
	// minSteps is what any file may take: small ones may repeat much by aliases.
	minSteps = 100_000
	// stepsPerByte is what a file may take for its size. Without aliases, each byte takes two or three.
	stepsPerByte = 16
	// bytesPerStep is how many bytes of text are made or passed over in one step.
	bytesPerStep = 16
)

// steps bounds the work on one file, in nodes and keys that are looked at. Aliases and << let a few bytes
// stand for very much, and some questions are asked of every key about all others.
type steps struct{ left int }

// spend takes steps; false when none are left. Then what was found is a part, and bounded says so.
func (s *steps) spend(n int) bool {
	s.left = max(s.left-n, -1)
	return s.left >= 0
}

func (s *steps) spent() bool { return s.left < 0 }

// long spends what it takes to make a path.
func (s *steps) long(path string) string {
	s.spend(len(path) / bytesPerStep)
	return path
}

// bounded refuses a file that has taken more steps than it may.
func (f *file) bounded() error {
	if f.spent() {
		return problem(f.path, "it repeats too much by aliases and <<, or is too large, to look for images in it: write it out, or split it")
	}
	return nil
}

// grant lets every file take a little more: each change is looked for in all of them.
func (s *search) grant() {
	for _, f := range s.parsed {
		if !f.spent() {
			f.left += minSteps
		}
	}
}
