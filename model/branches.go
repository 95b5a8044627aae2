package model

import (
	"github.com/easyrl/easyrl/model/layer"
	"github.com/easyrl/easyrl/npu"
)

// branches holds the branches of all layers, one for each sublayer of a block.
type branches []layer.Branch

func newBranches(dev npu.Device, c *Config) (b branches) {
	for _, s := range c.Block() {
		b = append(b, s.NewBranch(dev))
	}
	return b
}

// prepare calls Prepare of all branches.
func (b branches) prepare(last int32) error {
	for _, branch := range b {
		if err := branch.Prepare(last); err != nil {
			return err
		}
	}
	return nil
}

// carve calls Carve of all branches.
func (b branches) carve(room layer.Room) {
	for _, branch := range b {
		branch.Carve(room)
	}
}

// free calls Free of all branches.
func (b branches) free() {
	for _, branch := range b {
		branch.Free()
	}
}
