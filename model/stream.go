package model

import (
	"fmt"
	"io"

	"github.com/easyrl/easyrl/checkpoint"
)

// checksumKey is the metadata under which a published file has its checksum.
const checksumKey = "easyrl.checksum"

// ReadStream fills w from a safetensors stream of size bytes, -1 where that is not
// known, which has exactly w's tensors, in any order. It reads r to its end, and
// returns what Checksum would; a stream that carries another one is refused. After
// an error w holds some of the values.
func (w *Weights) ReadStream(r io.Reader, size int64) (checksum string, err error) {
	s, err := checkpoint.NewStream(r, size)
	if err != nil {
		return "", err
	}
	return w.readStream(s)
}

func (w *Weights) readStream(s *checkpoint.Stream) (checksum string, err error) {
	places := make(map[string]*Param, len(w.Params))
	for i := range w.Params {
		p := &w.Params[i]
		if _, err := p.find("", s); err != nil {
			return "", err
		}
		places[p.Name] = p
	}
	for _, t := range s.Tensors() {
		if places[t.Name] == nil {
			return "", fmt.Errorf("load weights: tensor %s has no place in the %s decoder, expected its %d tensors only", t.Name, w.Config.Type, len(w.Params))
		}
	}
	err = s.Blocks(func(t checkpoint.Tensor) int { return places[t.Name].blockLen() }, func(t checkpoint.Tensor, first int, vals []float32) error {
		return w.set(places[t.Name], first, vals)
	})
	if err == nil {
		err = w.dev.Sync()
	}
	if err != nil {
		return "", err
	}
	if checksum = s.Sum(); checksum == "" {
		checksum = w.Checksum()
	}
	if want := s.Metadata()[checksumKey]; want != "" && want != checksum {
		return "", fmt.Errorf("load weights: checksum %s, expected %.40q", checksum, want)
	}
	return checksum, nil
}

// ReadFile is ReadStream from a file.
func (w *Weights) ReadFile(path string) (checksum string, err error) {
	err = checkpoint.ReadFile(path, func(s *checkpoint.Stream) (err error) {
		checksum, err = w.readStream(s)
		return err
	})
	return checksum, err
}

// checkFinite refuses NaN and infinity among values from value first of p on.
func (p *Param) checkFinite(vals []float32, first int) error {
	for j, v := range vals {
		if v-v != 0 {
			return fmt.Errorf("load weights: tensor %s: value %d is %v: %w", p.Name, first+j, v, ErrNotFinite)
		}
	}
	return nil
}
