package state

import "time"

// floor watches whether enough members serve.
type floor struct {
	publishing bool      // a publish takes all members out of service, which is no news
	lowSince   time.Time // when too few serve; zero while enough do, or during a publish
	low        bool      // as reported last
}

// check notes whether enough serve and reports whether that is news. Too few are
// none before there are weights.
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
