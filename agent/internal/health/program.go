package health

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
)

// maxPrograms bounds how many compiled expressions are kept: more than any cluster has kinds that
// need one, and little memory.
const maxPrograms = 256

// compiled is shared by all objects: those of one kind mostly carry the same expressions, which are
// evaluated for every change of each.
var compiled = programs{known: map[string]program{}}

// programs keeps compiled expressions. Safe for concurrent use, as a cel.Program is.
type programs struct {
	mu    sync.Mutex
	known map[string]program
}

// program is what became of an expression; one that makes no sense is kept as well.
type program struct {
	cel.Program
	err error
}

// get returns the program of an expression, compiling it when it is not at hand.
func (p *programs) get(expression string) (cel.Program, error) {
	p.mu.Lock()
	found, ok := p.known[expression]
	p.mu.Unlock()
	if ok {
		return found.Program, found.err
	}
	made, err := compile(expression)
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.known {
		if len(p.known) < maxPrograms {
			break
		}
		delete(p.known, old) // any: one that is in use is compiled again
	}
	p.known[expression] = program{made, err}
	return made, err
}

func compile(expression string) (cel.Program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compiling %q: %w", expression, issues.Err())
	}
	made, err := env.Program(ast, cel.CostLimit(maxCost))
	if err != nil {
		return nil, fmt.Errorf("preparing %q: %w", expression, err)
	}
	return made, nil
}
