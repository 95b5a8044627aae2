package npu

// Ceiling holds the best rates that a number of threads reach.
type Ceiling struct {
	Threads       int     `json:"threads"`
	FLOPPerSecond float64 `json:"flops"`                 // float32 operations per second, two for each fused multiply-add
	Read          float64 `json:"read_bytes_per_second"` // from memory
	Copy          float64 `json:"copy_bytes_per_second"` // in memory; a byte counts as read and as written
}

// Ceilings are the best rates of a machine: the roofs against which a kernel's speed
// is measured (Williams, Waterman and Patterson 2009, "Roofline").
type Ceilings struct {
	One Ceiling `json:"one_thread"`
	All Ceiling `json:"all_threads"`
}
