//go:build !unix

package limittest

import "time"

// busy returns the wall-clock time, because processor time is not available on these
// systems.
func busy() time.Duration { return time.Duration(time.Now().UnixNano()) }
