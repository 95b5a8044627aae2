package trimodel

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/attention"
	"github.com/easyrl/easyrl/backend"
	"github.com/easyrl/easyrl/loss"
	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/device"
	"github.com/easyrl/easyrl/npu/far"
)

func openFar(t *testing.T) (dev npu.Device, library string) {
	t.Helper()
	library = far.Library(t)
	dev, err := device.Open(library, npu.FP32, 1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dev.Close() }) // a fault may have left a failure
	return dev, library
}

// ones returns a gradient of 1 for every target.
func ones(lp backend.Outputs) (backend.Values, error) {
	gradient := make([]float32, len(lp.Values[backend.Policy]))
	for i := range gradient {
		gradient[i] = 1
	}
	return backend.Values{backend.Policy: gradient}, nil
}

// measured runs a micro-batch with gradients of 1 and returns its counters. It fails unless the
// host waits exactly once and moves at most 64 bytes a row and 16 a target.
func measured(t *testing.T, m *Models, library string, l *attention.Layout) (c far.Counters, err error) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if err := m.dev.Sync(); err != nil {
		return c, err
	}
	far.Reset(library)
	err = m.Pass(t.Context(), l, latest(m), ones)
	c = far.Read(library)
	switch limit := int64(64*l.Rows() + 16*len(l.Targets)); {
	case err != nil:
		return c, err
	case c.Waits != 1:
		return c, fmt.Errorf("%d waits, expected 1", c.Waits)
	case c.BytesUp+c.BytesDown > limit:
		return c, fmt.Errorf("%d bytes moved, expected at most %d", c.BytesUp+c.BytesDown, limit)
	}
	return c, m.dev.Sync()
}

// The host waits for the device once in a micro-batch, for its log-probabilities, and three
// times in an optimizer step, for the norm, the check of the weights and the checksum of what it
// publishes. A device replays the passes of a layout of similar size. Gradients have the CPU's
// bits.
func TestWaitsAndTransfers(t *testing.T) {
	for name, test := range map[string]struct {
		cfg     Config
		replays int64 // of a micro-batch in the last step: forward passes and a backward pass
	}{
		"policy":    {Config{OldPolicy: loss.Behaviour, Temperature: 1}, 2},
		"three":     {Config{OldPolicy: loss.PreviousStep, Reference: true, Temperature: 0.7}, 4},
		"recompute": {Config{OldPolicy: loss.Behaviour, Temperature: 1, Recompute: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dev, library := openFar(t)
			m, host := openOn(t, dev, test.cfg), open(t, test.cfg)
			defer m.Close()
			defer host.Close()
			for number := range 3 {
				for _, x := range []*Models{m, host} {
					_, err := x.Publish(t.Context(), int64(number+1))
					require.NoError(t, err)
				}
				for i, l := range []*attention.Layout{long(8), long(9), long(8)} {
					c, err := measured(t, m, library, l)
					if number > 0 { // the first passes also send the table of rotary positions
						require.NoError(t, err, "step %d", number)
					}
					if number == 2 {
						require.Equal(t, test.replays, c.Replays)
					}
					if i > 0 && number > 0 { // in the first step, activations grow
						require.Zero(t, c.Captures, "the layouts have one shape")
					}
					require.NoError(t, host.Pass(t.Context(), l, latest(host), ones))
				}
				far.Reset(library)
				_, err := m.Step(t.Context(), update(m))
				require.NoError(t, err)
				require.NoError(t, m.CheckFinite())
				_, err = m.Publish(t.Context(), int64(number+2))
				require.NoError(t, err)
				require.LessOrEqual(t, far.Read(library).Waits, int64(3), "step %d", number)
				_, err = host.Step(t.Context(), update(host))
				require.NoError(t, err)
				_, err = host.Publish(t.Context(), int64(number+2))
				require.NoError(t, err)
				require.Equal(t, host.current.Checksum(), m.current.Checksum(), "step %d", number)
			}
		})
	}
}

// long is a layout with responses of 9 tokens and of n. Those of 8 and 9 are padded to one shape.
func long(n int) *attention.Layout {
	tokens := []int32{9, 2, 6, 5, 3, 5, 8, 9, 7}
	var l attention.Layout
	root := l.Add(-1, []int32{3, 1, 4, 1, 5}, false)
	l.AddResponse(root, tokens)
	l.AddResponse(root, tokens[:n])
	return &l
}

// meddler is a device that does more than it is asked to.
type meddler struct {
	npu.Device
	onUpload, onKernel func(d npu.Device, b npu.Buffer)
}

func (d *meddler) UploadInts(dst npu.Buffer, src []int32) {
	d.Device.UploadInts(dst, src)
	if d.onUpload != nil {
		d.onUpload(d.Device, dst)
	}
}

func (d *meddler) SwiGLU(y, gate, up npu.Buffer) {
	if d.onKernel != nil {
		d.onKernel(d.Device, y)
	}
	d.Device.SwiGLU(y, gate, up)
}

// measured notices a wait, a download, a host read of device memory and a use of freed memory.
func TestMeddling(t *testing.T) {
	alias := func(b npu.Buffer) npu.Buffer { return npu.DeviceBuffer(b.Addr(), b.DType(), b.Len(), b.Space()) }
	for name, test := range map[string]struct {
		fault meddler
		want  string
	}{
		"nothing": {},
		"wait":    {meddler{onUpload: func(d npu.Device, _ npu.Buffer) { _ = d.Sync() }}, "2 waits, expected 1"},
		"download": {meddler{onUpload: func(d npu.Device, b npu.Buffer) {
			for range 8 {
				d.DownloadInts(make([]int32, b.Len()), b)
			}
		}}, "bytes moved, expected at most"},
		"read by the host": {meddler{onUpload: func(_ npu.Device, b npu.Buffer) { _ = b.Int32s()[0] }},
			"index out of range"},
		"use after free": {meddler{onUpload: func(d npu.Device, b npu.Buffer) {
			freed, _ := d.Alloc(npu.Int32, b.Len(), npu.Activations)
			d.Free(freed)
			d.Copy(b, freed)
		}}, "copy: source: memory is free"},
		"use after free, unknown to the host": {meddler{onUpload: func(d npu.Device, b npu.Buffer) {
			freed, _ := d.Alloc(npu.Int32, b.Len(), npu.Activations)
			d.Free(freed)
			d.Copy(b, alias(freed))
		}}, "copy: src: memory is free"},
		"captured wait": {meddler{onKernel: func(d npu.Device, _ npu.Buffer) { _ = d.Sync() }},
			"wait in a capture of kernels"},
		"captured download": {meddler{onKernel: func(d npu.Device,
			b npu.Buffer) {
			d.Download(make([]float32, b.Len()), b)
		}}, "download in a capture"},
		"captured upload": {meddler{onKernel: func(d npu.Device,
			b npu.Buffer) {
			d.Upload(b, make([]float32, b.Len()))
		}}, "upload in a capture"},
		"captured allocation": {meddler{onKernel: func(d npu.Device,
			_ npu.Buffer) {
			_, _ = d.Alloc(npu.Float32, 1, npu.Weights)
		}}, "allocation in a capture"},
	} {
		t.Run(name, func(t *testing.T) {
			dev, library := openFar(t)
			fault := test.fault
			fault.Device = dev
			m := openOn(t, &fault, Config{OldPolicy: loss.Behaviour, Temperature: 1})
			quiet := fault
			fault.onUpload, fault.onKernel = nil, nil
			_, err := m.Publish(t.Context(), 1)
			require.NoError(t, err)
			if quiet.onKernel == nil {
				_, _ = measured(t, m, library, layout()) // sends the table of rotary positions
			}
			fault.onUpload, fault.onKernel = quiet.onUpload, quiet.onKernel
			_, err = measured(t, m, library, layout())
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}
