// Package soak tells tests how many cases to try.
package soak

import (
	"flag"
	"os"
	"strconv"
)

// Long reports whether tests run their long versions, because EASYRL_SOAK=1 is set in the
// environment. The short versions try fewer cases, but some of every kind, and the same
// ones each time.
func Long() bool { return os.Getenv("EASYRL_SOAK") == "1" }

// Parallel lets n tests of a package run at once, unless the command line has -parallel. TestMain calls it
// for tests that mostly wait, so that more of them can run than there are cores.
func Parallel(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
