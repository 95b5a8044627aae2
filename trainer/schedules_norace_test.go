//go:build !race

package trainer_test

// schedules is the number of schedules that TestSchedulesGiveTheSameBits tries.
const schedules = 200
