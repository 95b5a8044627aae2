package model

import (
	"fmt"
	"io"

	"github.com/easyrl/easyrl/checkpoint"
	"github.com/easyrl/easyrl/model/tensor"
)

// VersionFile is the file of a version of the weights whose values are not in memory.
type VersionFile struct {
	Config *Config
	Number int64
	Sum    string // as Weights.Sum returns it
}

// Write streams the file that Snapshot.WriteSafetensors writes, tensor by tensor. read returns the
// row-major values of a tensor. Write has finished with them when it calls read again.
func (v VersionFile) Write(w io.Writer, read func(p *tensor.Param) ([]float32, error)) error {
	params := v.Config.Params()
	head, err := v.header(params)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	for _, p := range params.ByName() {
		values, err := read(p)
		if err == nil {
			err = checkpoint.WriteFloats(w, values)
		}
		if err != nil {
			return fmt.Errorf("write tensor %s: %w", p.Name, err)
		}
	}
	return nil
}

// Size returns the number of bytes that Write writes.
func (v VersionFile) Size() (int64, error) {
	head, err := v.header(v.Config.Params())
	return int64(len(head)) + 4*v.Config.NumParams(), err
}

func (v VersionFile) header(params tensor.Params) ([]byte, error) {
	var sources []checkpoint.Source
	for i := range params {
		sources = append(sources, checkpoint.Source{Name: params[i].Name, Shape: params[i].Shape().RowShape()})
	}
	return header(sources, v.Number, map[string]string{checksumKey: v.Sum}, checkpoint.Align)
}
