// Package schedule decides the order of the training loop: when a version of the weights is published, which batch
// is sampled with it, and which batch a step trains.
//
// It counts three things from 1. A batch is the prompts that are sampled together. Version v of the weights is the
// policy before step v. A step trains one batch and makes the next version. Under the rule of periodic asynchrony,
// step n trains batch n, which was sampled with version n, so that all data is on-policy.
//
// The package is pure: it has no goroutine, lock, clock or I/O. The trainer does what Next says and reports it.
package schedule

import "fmt"

// Rule relates steps, batches and versions. The zero Rule is periodic asynchrony.
type Rule struct {
	// Staleness is the number of steps by which the version that samples a batch may be older than the
	// version of the step that trains it.
	Staleness int
}

// OldestVersion returns the oldest version that may sample a batch.
func (r Rule) OldestVersion(batch int) int64 { return int64(max(1, batch-r.Staleness)) }

// Check returns an error if a step may not train a batch that a version sampled: the version is too old, or
// newer than the policy before the step.
func (r Rule) Check(step int, version int64) error {
	oldest := r.OldestVersion(step)
	switch {
	case version >= oldest && version <= int64(step):
		return nil
	case oldest == int64(step):
		return fmt.Errorf("version %d in step %d, expected %d", version, step, step)
	}
	return fmt.Errorf("version %d in step %d, expected %d to %d", version, step, oldest, step)
}

// Versions returns the number of published versions to keep: those that the rule allows in a step, and one
// that instances may still hold while they get the next.
func (r Rule) Versions() int { return r.Staleness + 2 }

// Kind is the kind of an Action.
type Kind int

// The kinds of actions.
const (
	Publish Kind = iota // publish Version to all instances, then call Published
	Sample              // start sampling Batch with Version, then call Started
	Train               // train Batch in Step, then call Trained
	End                 // all steps are done
)

// Action is what the trainer does next. Fields that its Kind does not name are 0.
type Action struct {
	Kind    Kind
	Step    int
	Batch   int
	Version int64
}

// Loop is the state of the training loop. The zero Loop is not usable; see New.
type Loop struct {
	rule      Rule
	steps     int   // steps of the run
	trained   int   // last completed step
	started   int   // last batch whose sampling has started
	published int64 // version that the instances hold; 0 for none
}

// New returns the loop of a run of the given number of steps, of which the first trained are complete. No batch
// is in flight and no version is published.
func New(rule Rule, steps, trained int) *Loop {
	return &Loop{rule: rule, steps: steps, trained: trained, started: trained}
}

// Current returns the version number of the policy.
func (l *Loop) Current() int64 { return int64(l.trained) + 1 }

// Next returns the next action, the same one until the caller reports it. It starts a batch as soon as the rule
// lets the current version sample it.
func (l *Loop) Next() Action {
	batch, step := l.started+1, l.trained+1
	switch {
	case step > l.steps:
		return Action{Kind: End}
	case batch > l.steps || l.rule.OldestVersion(batch) > l.Current():
		return Action{Kind: Train, Step: step, Batch: step}
	case !l.IsPublished():
		return Action{Kind: Publish, Version: l.Current()}
	}
	return Action{Kind: Sample, Batch: batch, Version: l.Current()}
}

// IsPublished reports whether the instances hold the current version.
func (l *Loop) IsPublished() bool { return l.published == l.Current() }

// Published records that all instances hold the current version.
func (l *Loop) Published() { l.published = l.Current() }

// Started records that the sampling of a batch has started. It panics if that is not the next action.
func (l *Loop) Started(batch int) {
	l.expect(Action{Kind: Sample, Batch: batch, Version: l.published})
	l.started = batch
}

// Trained records that a step has made the next version. It panics if that is not the next action.
func (l *Loop) Trained(step int) {
	l.expect(Action{Kind: Train, Step: step, Batch: step})
	l.trained = step
}

// expect panics unless the next action is a.
func (l *Loop) expect(a Action) {
	if next := l.Next(); next != a {
		panic(fmt.Sprintf("schedule: reported %+v, expected %+v", a, next))
	}
}
