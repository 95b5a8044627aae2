//go:build unix

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// raiseFiles allows n open files in this process and in its children.
func raiseFiles(n uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	if uint64(limit.Cur) >= n { //nolint:unconvert // signed on some systems
		return nil
	}
	if uint64(limit.Max) < n { //nolint:unconvert // same here
		return fmt.Errorf("limit of open files is %d, expected %d for the connections. Raise ulimit -n or lower -connections", limit.Max, n)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("raise the limit of open files to %d: %w", limit.Max, err)
	}
	return nil
}
