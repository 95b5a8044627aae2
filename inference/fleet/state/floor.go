package state

import "time"

// floor tracks whether enough members serve.
type floor struct {
	publishing bool      // a publish takes all members out of service, which is not reported
	lowSince   time.Time // when members became too few; zero while enough serve, or during a publish
	low        bool      // as last reported
}

// check records whether enough members serve and reports whether that has changed. Before
// the first weights, too few members are no change.
func (f *floor) check(now time.Time, enough, weights bool) bool {
	switch {
	case f.publishing:
		f.lowSince = time.Time{}
	case enough:
		f.lowSince = time.Time{}
		return f.low
	case f.lowSince.IsZero():
		f.lowSince = now
		return f.low != weights
	}
	return false
}
