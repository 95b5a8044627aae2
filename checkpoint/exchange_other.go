//go:build !linux

package checkpoint

import "errors"

// exchange is Linux's alone.
func exchange(_, _ string) error { return errors.ErrUnsupported }
