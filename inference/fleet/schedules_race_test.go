//go:build race

package fleet

// schedules of the chaos test: the race detector cannot run hundreds of bubbles in
// one process.
const schedules = 20
