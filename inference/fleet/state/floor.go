package state

import "time"

// floor tracks whether enough members serve.
type floor struct {
	publishing bool      // a publish has taken all members out of service, which is not reported
	lowSince   time.Time // when too few members began to serve; zero while enough serve, or during a publish
	low        bool      // the last report said that too few members serve
}

// check updates lowSince and reports whether to report a change, after which the caller inverts low.
// weights says whether there are weights: before the first ones, too few serving members are not worth a
// report.
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
