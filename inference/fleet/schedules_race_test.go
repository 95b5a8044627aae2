//go:build race

package fleet

// schedules of the chaos test: the race detector does not bear hundreds of bubbles in
// one process.
const schedules = 20
