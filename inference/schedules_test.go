//go:build !race

package inference

// schedules of the chaos test.
const schedules = 200
