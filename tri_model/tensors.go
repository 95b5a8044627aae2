package trimodel

import (
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/model"
)

// Kind says what the values of tensors are.
type Kind uint8

// The kinds of tensors. Only trained roles have masters and moments.
const (
	Weights      Kind = iota
	FirstMoment       // of AdamW
	SecondMoment      // of AdamW
	Master            // see Trained.Masters
)

// String returns a kind's name, for errors.
func (k Kind) String() string {
	return [...]string{"weights", "first moment", "second moment", "master weights"}[k]
}

// Tensors names a group of tensors of a Set. Numbers, not Tensors, name published versions.
type Tensors struct {
	Role backend.Role
	Kind Kind
}

// Tensors returns the tensors of a name. Those of the old policy are the version that Sampled or HoldSampled
// recorded, or the policy's if that is not held, as before the first step.
func (s *Set) Tensors(name Tensors) *model.Weights {
	switch name.Role {
	case backend.Reference:
		return s.Reference
	case backend.OldPolicy:
		if s.sampled != nil {
			return s.sampled.Weights()
		}
		return s.Policy.Weights
	default:
		return s.Policy.tensors(name.Kind)
	}
}
