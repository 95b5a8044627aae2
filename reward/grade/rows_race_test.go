//go:build race

package grade

// One in every so many rows of the large tables is tested: the race detector takes
// ten times as long for each, and finds in one what it finds in another.
const every = 25
