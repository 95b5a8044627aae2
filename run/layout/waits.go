package layout

import (
	"github.com/easyrl/easyrl/model/carry"
	"github.com/easyrl/easyrl/parallel"
	"github.com/easyrl/easyrl/parallel/pipeline"
)

// Waits predict the shares of time, 0 to 1, in which ranks wait for each other because of the
// order of their work. Stages, micro-batches and chunks count as equally long.
type Waits struct {
	// Pipeline is the share of an update's passes in which a stage waits, with MicroBatches for
	// each replica that are all there from the start.
	Pipeline     float64 `json:"pipeline"`
	Stages       int     `json:"stages"`
	MicroBatches int     `json:"micro_batches"`
	// HandOn is the share of a product over Rows rows, whose sum is handed on in Chunks, in which
	// a tensor rank waits. It is 0 with parallel.reduce = "sum".
	HandOn float64 `json:"hand_on"`
	Ranks  int     `json:"tensor_ranks"`
	Chunks int     `json:"chunks"`
	Rows   int     `json:"rows"`
}

// WaitsOf returns the waits of a mesh for micro-batches of this many rows. exact means that tensor
// ranks hand sums on.
func WaitsOf(mesh parallel.Mesh, micros, rows int, exact bool) Waits {
	w := Waits{Stages: mesh.PP, MicroBatches: max(1, micros), Ranks: mesh.TP, Chunks: 1, Rows: rows}
	w.Pipeline = pipeline.Bubble(w.Stages, w.MicroBatches)
	if exact && mesh.TP > 1 && rows > 0 {
		chunk := carry.Chunk(rows, mesh.TP)
		w.Chunks = (rows + chunk - 1) / chunk
		w.HandOn = pipeline.HandOnBubble(mesh.TP, w.Chunks)
	}
	return w
}
