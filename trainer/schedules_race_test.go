//go:build race

package trainer_test

// schedules is the number of schedules that TestSchedulesGiveTheSameBits tries. Each one
// takes longer with the race detector.
const schedules = 20
