//go:build race

package state

// sequences is the number of random sequences of events.
const sequences = 200
