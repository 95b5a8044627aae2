//go:build race

package fleet

// schedules is the number of fault schedules that the chaos test runs. The race detector
// cannot run hundreds of bubbles in one process.
const schedules = 20
