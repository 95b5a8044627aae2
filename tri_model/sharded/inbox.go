package sharded

import "sync"

// inbox holds answers that belong to micro-batches until world.Poll takes them, and the first
// failure. Any goroutine may call add, fail and err, but only the trainer's goroutine calls take. The inbox
// is not bounded, so that a rank never waits for the trainer. It holds at most two answers for each
// micro-batch in flight.
type inbox struct {
	notify func()        // called after each add and after the first failure
	ready  chan struct{} // holds a value after each add and after the first failure
	failed chan struct{} // closed after failure is set

	mu      sync.Mutex
	answers []answer
	failure error
}

func newInbox(notify func()) inbox {
	return inbox{notify: notify, ready: make(chan struct{}, 1), failed: make(chan struct{})}
}

// add adds an answer of a micro-batch.
func (b *inbox) add(a answer) {
	b.mu.Lock()
	b.answers = append(b.answers, a)
	b.mu.Unlock()
	b.signal()
}

// signal sends a value to ready unless it holds one, and calls notify.
func (b *inbox) signal() {
	defer b.notify()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take removes and returns all answers, in the order of add.
func (b *inbox) take() []answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	answers := b.answers
	b.answers = nil
	return answers
}

// fail records err if it is the first failure, and ends all waits for the inbox.
func (b *inbox) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failure == nil {
		b.failure = err
		close(b.failed)
		b.signal()
	}
}

// err returns the first failure.
func (b *inbox) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failure
}
