package model

import (
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// blocks holds the branches of all layers, one for each sublayer of a block.
type blocks []layer.Branch

func newBlocks(dev npu.Device, c *Config) (b blocks) {
	for _, s := range c.Block() {
		b = append(b, s.NewBranch(dev))
	}
	return b
}

// prepare allocates what depends on positions, up to last.
func (b blocks) prepare(last int32) error {
	for _, branch := range b {
		if err := branch.Prepare(last); err != nil {
			return err
		}
	}
	return nil
}

// carve assigns the memory of a pass.
func (b blocks) carve(room layer.Room) {
	for _, branch := range b {
		branch.Carve(room)
	}
}

// free frees what prepare has allocated.
func (b blocks) free() {
	for _, branch := range b {
		branch.Free()
	}
}
