//go:build !race

package fleet

// schedules is the number of fault schedules that the chaos test runs.
const schedules = 200
