package inference

import (
	"fmt"
	"sync"
)

// Faults are counts of what went wrong: with what samples and carries, and with
// what it was asked.
type Faults struct{ Infrastructure, Data int64 }

// Budget counts the faults of a run and says when they are more than it bears.
// Faults of one kind leave the other kind's budget alone. Its methods may be
// called concurrently.
type Budget struct {
	max Faults

	mu    sync.Mutex
	now   Faults
	spent error
}

// NewBudget bears at most so many faults of each kind; where a count is 0, any
// number.
func NewBudget(most Faults) *Budget { return &Budget{max: most} }

// Infrastructure counts a fault of an instance or of the way to it. It returns
// what Err does.
func (b *Budget) Infrastructure(cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Infrastructure++
	return b.check("infrastructure", b.now.Infrastructure, b.max.Infrastructure, cause)
}

// Data counts a fault of a prompt or of its reward. It returns what Err does.
func (b *Budget) Data(cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.Data++
	return b.check("data", b.now.Data, b.max.Data, cause)
}

func (b *Budget) check(kind string, n, most int64, cause error) error {
	if b.spent == nil && most > 0 && n > most {
		b.spent = fmt.Errorf("%w: %d faults of %s, expected at most %d; the last: %w", ErrBudget, n, kind, most, cause)
	}
	return b.spent
}

// Err wraps ErrBudget, and the fault that was one too many, once there was one.
func (b *Budget) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.spent
}

// Faults are those counted so far.
func (b *Budget) Faults() Faults {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}
