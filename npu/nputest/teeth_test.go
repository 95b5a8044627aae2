package nputest_test

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/bf16"
	"github.com/easyrl/easyrl/npu/nputest"
)

// faulty names the fault of the device that TestFaulty tests.
const faulty = "EASYRL_TEST_FAULT"

// fault is a device that breaks the contract in one way, and the test that finds it.
type fault struct {
	open     func(d *deferred) npu.Device
	found    string
	numerics npu.Numerics
}

func faults() map[string]fault {
	all := map[string]fault{}
	for name, f := range queueFaults() {
		all[name] = f
	}
	for name, f := range kernelFaults() {
		all[name] = f
	}
	return all
}

// queueFaults are faults of memory, transfers, the queue and graphs.
func queueFaults() map[string]fault {
	return map[string]fault{
		"none": {open: func(d *deferred) npu.Device { return d }},
		"uploads read the slice later": {open: func(d *deferred) npu.Device { return &lateUploads{d} },
			found: "TestFaulty/queue/transfers"},
		"products read the list later": {open: func(d *deferred) npu.Device { return &lateProducts{d} },
			found: "TestFaulty/queue/lists"},
		"projections read the list later": {open: func(d *deferred) npu.Device { return &lateProjections{d} },
			found: "TestFaulty/queue/lists"},
		"updates read the list later": {open: func(d *deferred) npu.Device { return &lateUpdates{d} },
			found: "TestFaulty/queue/lists"},
		"downloads overtake kernels": {open: func(d *deferred) npu.Device { return &earlyDownloads{d} },
			found: "TestFaulty/queue/transfers"},
		"memory is free before kernels": {open: func(d *deferred) npu.Device { return &earlyFree{d} },
			found: "TestFaulty/queue/free"},
		"freed memory is accepted": {open: func(d *deferred) npu.Device { return &blindFree{d} },
			found: "TestFaulty/capture"},
		"events mark nothing": {open: func(d *deferred) npu.Device { return &noEvents{d} },
			found: "TestFaulty/events"},
		"graphs call the kernels again": {open: func(d *deferred) npu.Device {
			return &graphs{deferred: d, again: true}
		}, found: "TestFaulty/capture"},
		"graphs use freed memory": {open: func(d *deferred) npu.Device { return &graphs{deferred: d} },
			found: "TestFaulty/capture"},
		"transfers in a capture are allowed": {open: func(d *deferred) npu.Device { return &laxCapture{d} },
			found: "TestFaulty/capture"},
		"sums of panels skip the last": {open: func(d *deferred) npu.Device { return &shortSums{d} },
			found: "TestFaulty/panels"},
		"a failure is lost": {open: func(d *deferred) npu.Device { return &silent{d} }, found: "TestFaulty/sample"},
	}
}

// kernelFaults are faults of results.
func kernelFaults() map[string]fault {
	linear := func(change func(bias npu.Buffer, start npu.Start) npu.Start) func(d *deferred) npu.Device {
		return func(d *deferred) npu.Device { return &otherStart{d, change} }
	}
	converts := func(round func(x float32) bf16.Number) func(d *deferred) npu.Device {
		return func(d *deferred) npu.Device { return &otherConvert{d, round} }
	}
	instead := func(of, start npu.Start) func(npu.Buffer, npu.Start) npu.Start {
		return func(_ npu.Buffer, s npu.Start) npu.Start {
			if s == of {
				return start
			}
			return s
		}
	}
	return map[string]fault{
		"norms are summed by leaves": {open: func(d *deferred) npu.Device { return &normsByLeaves{d} },
			found: "TestFaulty/units"},
		"a product starts from what is left": {open: linear(func(bias npu.Buffer, start npu.Start) npu.Start {
			if bias.IsNil() {
				return npu.Continue
			}
			return start
		}), found: "TestFaulty/dense"},
		"a product continues from 0": {open: linear(instead(npu.Continue, npu.Fresh)), found: "TestFaulty/dense/chain"},
		"a product starts from what it is added to": {open: linear(instead(npu.Add, npu.Continue)),
			found: "TestFaulty/dense/chain", numerics: npu.BF16},
		"a product is added to what it continues": {open: linear(instead(npu.Continue, npu.Add)),
			found: "TestFaulty/dense/long_chains_in_pieces", numerics: npu.BF16},
		"a product starts from its bias": {open: func(d *deferred) npu.Device { return &biasFirst{d} },
			found: "TestFaulty/dense/chain", numerics: npu.BF16},
		"sums are truncated": {open: func(d *deferred) npu.Device { return &truncatedLinear{d} },
			found: "TestFaulty/dense/rounding", numerics: npu.BF16},
		"steps cross blocks": {open: func(d *deferred) npu.Device { return &oneBlock{d} },
			found: "TestFaulty/input/chain", numerics: npu.BF16},
		"steps cross leaves": {open: func(d *deferred) npu.Device { return &oneLeaf{d} },
			found: "TestFaulty/leaves/chains", numerics: npu.BF16},
		"numbers are truncated": {open: converts(func(x float32) bf16.Number {
			return bf16.Number(math.Float32bits(x) >> 16)
		}), found: "TestFaulty/convert", numerics: npu.BF16},
		"ties are rounded up": {open: converts(func(x float32) bf16.Number {
			if x == x && math.Float32bits(x)&0xffff == 0x8000 && bf16.Round(x) != 0 {
				return bf16.Number((math.Float32bits(x) + 0x8000) >> 16)
			}
			return bf16.Round(x)
		}), found: "TestFaulty/convert", numerics: npu.BF16},
		"small numbers are kept": {open: converts(func(x float32) bf16.Number {
			if x == x {
				return bf16.Number((math.Float32bits(x) + 0x7fff + math.Float32bits(x)>>16&1) >> 16)
			}
			return bf16.Round(x)
		}), found: "TestFaulty/convert", numerics: npu.BF16},
		"a NaN becomes an infinity": {open: converts(func(x float32) bf16.Number {
			if x != x {
				return bf16.Number(math.Float32bits(x)>>16) &^ 0x7f
			}
			return bf16.Round(x)
		}), found: "TestFaulty/convert", numerics: npu.BF16},
		"weights keep their old copy": {open: func(d *deferred) npu.Device { return &staleCopy{d} },
			found: "TestFaulty/update", numerics: npu.BF16},
		"operands of any type are accepted": {open: func(d *deferred) npu.Device { return &anyType{d} },
			found: "TestFaulty/checks", numerics: npu.BF16},
		"norms of activations add no gradient": {open: func(d *deferred) npu.Device { return &noNormSums{d} },
			found: "TestFaulty/norm/reference", numerics: npu.BF16},
		"NaN of other trees leak": {open: func(d *deferred) npu.Device { return &leaks{d} },
			found: "TestFaulty/attention/other_trees_unread"},
		"NaN of unused slots leak": {open: func(d *deferred) npu.Device { return &leaks{d} },
			found: "TestFaulty/attention/cached", numerics: npu.BF16},
	}
}

// The suite finds every fault.
func TestFaults(t *testing.T) {
	t.Parallel()
	binary, err := os.Executable()
	require.NoError(t, err)
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := "^TestFaulty$/^(queue|events|capture|panels|sample|checks|dense|units)$"
			if f.found != "" {
				parts = "^" + strings.ReplaceAll(f.found, "/", "$/^") + "$"
			}
			cmd := exec.CommandContext(t.Context(), binary, "-test.run="+parts)
			cmd.Env = append(os.Environ(), faulty+"="+name)
			out, err := cmd.CombinedOutput()
			if f.found == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "the suite passes")
			require.Contains(t, string(out), "--- FAIL: "+f.found+" ", "%s", out)
		})
	}
}

// TestFaulty runs the suite on a device with a fault, in a process of TestFaults.
func TestFaulty(t *testing.T) {
	name := os.Getenv(faulty)
	if name == "" {
		t.Skip("TestFaults runs it")
	}
	nputest.Run(t, func(int) (npu.Device, error) {
		f := faults()[name]
		d, err := openDeferred(newSpace(), f.numerics, true)
		if err != nil {
			return nil, err
		}
		return f.open(d.(*deferred)), nil
	})
}

type lateUploads struct{ *deferred }

func (d *lateUploads) UploadInts(dst npu.Buffer, src []int32) {
	d.later(func() { d.Device.UploadInts(d.at(dst), src) })
}

type lateProducts struct{ *deferred }

func (d *lateProducts) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	d.check.Products(dx, products, t, add)
	d.later(func() {
		var all []npu.Product
		for _, p := range products {
			all = append(all, npu.Product{DY: d.deferred.at(p.DY), W: d.matrix(p.W), Block: p.Block})
		}
		d.Device.LinearBackwardInput(d.at(dx), all, t, add)
	})
}

type lateProjections struct{ *deferred }

func (d *lateProjections) NormLinear(outputs []npu.Projection, norm, x, weight npu.Buffer, t int, eps float32) {
	d.later(func() {
		var all []npu.Projection
		for _, o := range outputs {
			all = append(all, npu.Projection{Y: d.at(o.Y), W: d.matrix(o.W), Bias: d.at(o.Bias)})
		}
		d.Device.NormLinear(all, d.at(norm), d.at(x), d.at(weight), t, eps)
	})
}

type lateUpdates struct{ *deferred }

func (d *lateUpdates) AdamW(updates []npu.Update, p npu.AdamWParams) {
	d.check.AdamW(updates)
	d.later(func() {
		var all []npu.Update
		for _, u := range updates {
			all = append(all, npu.Update{
				W: d.at(u.W), Copy: d.at(u.Copy), G: d.sums(u.G), M: d.at(u.M), V: d.at(u.V), Decay: u.Decay,
			})
		}
		d.Device.AdamW(all, p)
	})
}

type earlyDownloads struct{ *deferred }

func (d *earlyDownloads) Download(dst []float32, src npu.Buffer) {
	d.check.Len("download", src, len(dst))
	d.Device.Download(dst, d.at(src))
}

type earlyFree struct{ *deferred }

func (d *earlyFree) Free(b npu.Buffer) {
	queue := d.queue
	d.queue = nil
	d.deferred.Free(b)
	d.run()
	d.queue = queue
}

type blindFree struct{ *deferred }

func (d *blindFree) Free(b npu.Buffer) {
	if !b.IsNil() {
		d.deferred.Free(npu.DeviceBuffer(b.Addr(), b.DType(), b.Len(), b.Space()))
	}
}

type noEvents struct{ *deferred }

func (d *noEvents) Record() (npu.Event, error) { return nil, nil }

func (d *noEvents) Fork(threads int) (npu.Device, error) {
	f, err := d.deferred.Fork(threads)
	if err != nil {
		return nil, err
	}
	return &noEvents{f.(*deferred)}, nil
}

// graphs captures kernels in a wrong way.
type graphs struct {
	*deferred
	again bool
}

func (d *graphs) Capture(record func()) (npu.Graph, error) {
	g, err := d.deferred.Capture(record)
	return &wrongGraph{g, d, record}, err
}

type wrongGraph struct {
	npu.Graph
	d      *graphs
	record func()
}

func (g *wrongGraph) Replay() bool {
	if g.d.again {
		g.record()
		return true
	}
	g.Graph.Replay()
	return true
}

type laxCapture struct{ *deferred }

func (d *laxCapture) Upload(dst npu.Buffer, src []float32) {
	host := append([]float32(nil), src...)
	d.later(func() { d.Device.Upload(d.at(dst), host) })
}

type shortSums struct{ *deferred }

func (d *shortSums) SumPanels(sums []uint64, matrices []npu.Matrix) error {
	err := d.deferred.SumPanels(sums, matrices)
	if len(sums) > 0 {
		sums[len(sums)-1] = 0
	}
	return err
}

type silent struct{ *deferred }

func (d *silent) Sync() error {
	_ = d.deferred.Sync()
	return nil
}

// otherStart starts products in another way.
type otherStart struct {
	*deferred
	change func(bias npu.Buffer, start npu.Start) npu.Start
}

func (d *otherStart) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.deferred.Linear(y, x, w, bias, t, d.change(bias, start))
}

// biasFirst starts chains from the bias. Only sums of type Float32 are wrong.
type biasFirst struct{ *deferred }

func (d *biasFirst) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	if bias.IsNil() || y.DType() != npu.Float32 {
		d.deferred.Linear(y, x, w, bias, t, start)
		return
	}
	d.later(func() {
		for row := range t {
			for i, b := range d.at(bias).BFloat16s() {
				d.at(y).Float32s()[row*w.Rows+i] = b.Float()
			}
		}
	})
	d.deferred.Linear(y, x, w, npu.Buffer{}, t, npu.Continue)
}

// truncatedLinear truncates sums that are activations.
type truncatedLinear struct{ *deferred }

func (d *truncatedLinear) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int, start npu.Start) {
	d.deferred.Linear(y, x, w, bias, t, start)
	if y.DType() == npu.Float32 {
		return
	}
	d.later(func() {
		sums, err := d.Device.Alloc(npu.Float32, y.Len(), npu.Activations)
		if err != nil {
			panic(err)
		}
		d.Device.Linear(sums, d.at(x), d.matrix(w), d.at(bias), t, start)
		for i, v := range sums.Float32s() {
			d.at(y).BFloat16s()[i] = bf16.Number(math.Float32bits(v) >> 16)
		}
		d.Device.Free(sums)
	})
}

type oneBlock struct{ *deferred }

func (d *oneBlock) LinearBackwardInput(dx npu.Buffer, products []npu.Product, t int, add bool) {
	if len(products) == 1 {
		p := products[0]
		p.Block = p.W.Rows
		products = []npu.Product{p}
	}
	d.deferred.LinearBackwardInput(dx, products, t, add)
}

type oneLeaf struct{ *deferred }

func (d *oneLeaf) LinearBackwardWeight(dw npu.MatrixSums, dBias npu.Sums, dy, x npu.Buffer, l *npu.Leaves) {
	one := *l
	if n := one.Ends.Len(); n > 0 {
		one.Ends = one.Ends.Slice(n-1, n)
	}
	d.deferred.LinearBackwardWeight(dw, dBias, dy, x, &one)
}

// otherConvert rounds to bfloat16 in another way.
type otherConvert struct {
	*deferred
	round func(x float32) bf16.Number
}

func (d *otherConvert) Convert(y, x npu.Buffer) {
	if y.DType() != npu.BFloat16 || x.DType() != npu.Float32 {
		d.deferred.Convert(y, x)
		return
	}
	d.later(func() {
		for i, v := range d.at(x).Float32s() {
			d.at(y).BFloat16s()[i] = d.round(v)
		}
	})
}

type staleCopy struct{ *deferred }

func (d *staleCopy) AdamW(updates []npu.Update, p npu.AdamWParams) {
	updates = slices.Clone(updates)
	for i := range updates {
		updates[i].Copy = npu.Buffer{}
	}
	d.deferred.AdamW(updates, p)
}

type anyType struct{ *deferred }

func (d *anyType) SwiGLU(y, gate, up npu.Buffer) {
	d.later(func() {
		if y.DType() == gate.DType() && y.DType() == up.DType() {
			d.Device.SwiGLU(d.at(y), d.at(gate), d.at(up))
		}
	})
}

// noNormSums loses the gradient of the weight if x is activations.
type noNormSums struct{ *deferred }

func (d *noNormSums) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int,
	eps float32, add bool, l *npu.Leaves) {
	d.deferred.RMSNormBackward(dx, dWeight, dy, x, weight, heads, eps, add, l)
	if x.DType() == npu.BFloat16 {
		d.deferred.Zero(dWeight.Buffer)
	}
}

// leaks lets a NaN among the values spoil a result.
type leaks struct{ *deferred }

func (d *leaks) Attention(out, stats, q, k, v npu.Buffer, segments npu.Segments, h npu.Heads) {
	d.deferred.Attention(out, stats, q, k, v, segments, h)
	d.later(func() { d.leak(out, v) })
}

func (d *leaks) AttentionCached(out, q, cacheK, cacheV npu.Buffer, t *npu.Tables, h npu.Heads) {
	d.deferred.AttentionCached(out, q, cacheK, cacheV, t, h)
	d.later(func() { d.leak(out, cacheV) })
}

func (d *leaks) leak(out, from npu.Buffer) {
	if out.DType() == npu.BFloat16 {
		isNaN := func(x bf16.Number) bool { return x.Float() != x.Float() }
		if slices.ContainsFunc(d.at(from).BFloat16s(), isNaN) {
			for i := range d.at(out).BFloat16s() {
				d.at(out).BFloat16s()[i] = bf16.Round(float32(math.NaN()))
			}
		}
		return
	}
	if slices.ContainsFunc(d.at(from).Float32s(), func(x float32) bool { return x != x }) {
		for i := range d.at(out).Float32s() {
			d.at(out).Float32s()[i] = float32(math.NaN())
		}
	}
}

type normsByLeaves struct{ *deferred }

func (d *normsByLeaves) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int,
	eps float32, add bool, l *npu.Leaves) {
	whole := *l
	whole.Units = l.Ends
	d.deferred.RMSNormBackward(dx, dWeight, dy, x, weight, heads, eps, add, &whole)
}
