//go:build !linux

package checkpoint

import "errors"

// exchange is supported only on Linux.
func exchange(_, _ string) error { return errors.ErrUnsupported }
