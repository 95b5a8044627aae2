package engine

import (
	"slices"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// scope is a level of variables.
type scope struct {
	parent *scope
	names  []string
	values []py.Value
	index  map[string]int // index of names; nil for few names
}

// inside returns a scope for a body in scope s.
func inside(s *scope, hidden []*py.Undefined) *scope {
	inner := &scope{parent: s}
	inner.hide(hidden)
	return inner
}

func (s *scope) hide(hidden []*py.Undefined) {
	for _, u := range hidden {
		name, _ := u.Name.(string)
		s.set(name, u)
	}
}

// manyNames is the number of names from which a scope has an index.
const manyNames = 8

func (s *scope) find(name string) int {
	if s.index != nil {
		if i, ok := s.index[name]; ok {
			return i
		}
		return -1
	}
	return slices.Index(s.names, name)
}

func (s *scope) set(name string, v py.Value) {
	if i := s.find(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
	if len(s.names) == manyNames {
		s.index = map[string]int{}
		for i, n := range s.names {
			s.index[n] = i
		}
	} else if s.index != nil {
		s.index[name] = len(s.names) - 1
	}
}
