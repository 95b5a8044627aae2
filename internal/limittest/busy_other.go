//go:build !unix

package limittest

import "time"

// busy is the time of day: these systems count no processor time here.
func busy() time.Duration { return time.Duration(time.Now().UnixNano()) }
