//go:build !race

package state

// sequences is the number of random event sequences.
const sequences = 3000
