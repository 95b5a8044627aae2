package nputest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/npu"
	"github.com/easyrl/easyrl/npu/nputest"
)

// faulty names the fault of the device that TestFaulty tests.
const faulty = "EASYRL_TEST_FAULT"

// fault is a device that breaks the contract in one way, and the test that finds it.
type fault struct {
	open  func(d *deferred) npu.Device
	found string
}

func faults() map[string]fault {
	return map[string]fault{
		"none": {func(d *deferred) npu.Device { return d }, ""},
		"uploads read the slice later": {func(d *deferred) npu.Device { return &lateUploads{d} },
			"TestFaulty/queue/transfers"},
		"products read the list later": {func(d *deferred) npu.Device { return &lateProducts{d} },
			"TestFaulty/queue/lists"},
		"projections read the list later": {func(d *deferred) npu.Device { return &lateProjections{d} },
			"TestFaulty/queue/lists"},
		"updates read the list later": {func(d *deferred) npu.Device { return &lateUpdates{d} },
			"TestFaulty/queue/lists"},
		"downloads overtake kernels": {func(d *deferred) npu.Device { return &earlyDownloads{d} },
			"TestFaulty/queue/transfers"},
		"memory is free before kernels": {func(d *deferred) npu.Device { return &earlyFree{d} },
			"TestFaulty/queue/free"},
		"freed memory is accepted": {func(d *deferred) npu.Device { return &blindFree{d} },
			"TestFaulty/capture"},
		"events mark nothing": {func(d *deferred) npu.Device { return &noEvents{d} },
			"TestFaulty/events"},
		"graphs call the kernels again": {func(
			d *deferred) npu.Device {
			return &graphs{deferred: d, again: true}
		}, "TestFaulty/capture"},
		"graphs use freed memory": {func(d *deferred) npu.Device { return &graphs{deferred: d} },
			"TestFaulty/capture"},
		"transfers in a capture are allowed": {func(d *deferred) npu.Device { return &laxCapture{d} },
			"TestFaulty/capture"},
		"sums of panels skip the last": {func(d *deferred) npu.Device { return &shortSums{d} },
			"TestFaulty/panels"},
		"a failure is lost":          {func(d *deferred) npu.Device { return &silent{d} }, "TestFaulty/sample"},
		"norms are summed by leaves": {func(d *deferred) npu.Device { return &normsByLeaves{d} }, "TestFaulty/units"},
		"a product starts from what is left": {func(d *deferred) npu.Device { return &staleLinear{d} },
			"TestFaulty/dense"},
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
		d, err := openDeferred(&space{Space: npu.NewSpace("deferred")}, true)
		if err != nil {
			return nil, err
		}
		return faults()[name].open(d.(*deferred)), nil
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
			all = append(all, npu.Update{W: d.at(u.W), Copy: d.at(u.Copy), G: d.sums(u.G), M: d.at(u.M), V: d.at(u.V), Decay: u.Decay})
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

type staleLinear struct{ *deferred }

func (d *staleLinear) Linear(y, x npu.Buffer, w npu.Matrix, bias npu.Buffer, t int,
	start npu.Start) {
	if bias.IsNil() {
		start = npu.Continue
	}
	d.deferred.Linear(y, x, w, bias, t, start)
}

type normsByLeaves struct{ *deferred }

func (d *normsByLeaves) RMSNormBackward(dx npu.Buffer, dWeight npu.Sums, dy, x, weight npu.Buffer, heads int,
	eps float32, add bool, l *npu.Leaves) {
	whole := *l
	whole.Units = l.Ends
	d.deferred.RMSNormBackward(dx, dWeight, dy, x, weight, heads, eps, add, &whole)
}
