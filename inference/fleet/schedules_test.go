//go:build !race

package fleet

// schedules of the chaos test.
const schedules = 200
