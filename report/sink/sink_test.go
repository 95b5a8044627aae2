package sink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/report"
)

// folder is a run's folder with its metrics.
type folder struct {
	t     *testing.T
	run   Run
	lines *report.Metrics
	notes []string
}

// newFolder opens dir as a process that starts with step from.
func newFolder(t *testing.T, dir string, from int) *folder {
	t.Helper()
	f := &folder{t: t}
	f.run = Run{Name: "addition", Dir: dir, Settings: map[string]string{"run.steps": "10", "loss.kind": `"grpo"`},
		Warn: func(format string, args ...any) { f.notes = append(f.notes, fmt.Sprintf(format, args...)) }}
	var err error
	f.lines, err = report.OpenMetrics(filepath.Join(dir, report.MetricsFile), from)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.lines.Close()) })
	return f
}

// step writes a step's line and then passes it to a sink.
func (f *folder) step(to sink, values report.Values) {
	f.t.Helper()
	require.NoError(f.t, f.lines.Write(report.Line{Values: values}))
	require.NoError(f.t, to.Step(values))
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(data)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"tensorboard", "csv", "mlflow=http://host:5000", "mlflow=https://host/prefix"} {
		require.NoError(t, Check(name), name)
	}
	for _, name := range []string{"", "wandb", "mlflow", "mlflow=", "mlflow=host:5000", "mlflow=ftp://host",
		"mlflow=http://host?a=b", "mlflow=http://host#a", "csv=x"} {
		require.ErrorContains(t, Check(name), `expected "tensorboard", "csv" or "mlflow=http`, name)
	}
}

func TestCSVAddsColumns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFolder(t, dir, 0)
	table, err := openCSV(&f.run)
	require.NoError(t, err)
	f.step(table, report.Values{"step": 0, "eval/a,b/mean@1": 0.25})
	f.step(table, report.Values{"step": 1, "reward/mean": 0.5, "actor/lr": 1.5e-7})
	f.step(table, report.Values{"step": 2, "reward/mean": math.NaN(), "eval/a,b/mean@1": 1e21})
	require.NoError(t, table.Close(Finished))
	require.Equal(t,
		"step,reward/mean,\"eval/a,b/mean@1\",actor/lr\n0,,0.25,\n1,0.5,,0.00000015\n2,,1000000000000000000000,\n",
		read(t, dir, CSVFile))
}

func TestCSVHasEachStepOnceAfterResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFolder(t, dir, 0)
	table, err := openCSV(&f.run)
	require.NoError(t, err)
	for step := range 4 {
		f.step(table, report.Values{"step": float64(step), "reward/mean": 0.5, "only/before": 1})
	}
	require.NoError(t, table.Close(Failed))

	f = newFolder(t, dir, 2)
	table, err = openCSV(&f.run)
	require.NoError(t, err)
	f.step(table, report.Values{"step": 2, "reward/mean": 0.75})
	require.NoError(t, table.Close(Finished))
	require.Equal(t, "step,reward/mean,only/before\n0,0.5,1\n1,0.5,1\n2,0.75,\n", read(t, dir, CSVFile))
}

// The PyPI package tensorboard 2.21 wrote the golden file, from its Event, Summary and
// SessionLog through its RecordWriter.
func TestEventsMatchGoldenFile(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, writeHead(&b, 1795313384.5))
	for _, values := range []report.Values{
		{"step": 0, "time": 1795313385, "eval/test/mean@1": 0.25, "version": 1},
		{"step": 1, "time": 1795313386.25, "reward/mean": 0.5, "actor/loss": math.NaN()},
		{"step": 300, "time": 1795313387, "reward/mean": -1e-7, "eval/test/mean@1": 1},
	} {
		require.NoError(t, writeRecord(&b, scalars(values)))
	}
	require.Equal(t, []byte(read(t, "testdata", "golden.tfevents")), b.Bytes())
}

// RFC 3720, B.4: the CRC-32C of 32 zero bytes is 8a9136aa.
func TestMasked(t *testing.T) {
	t.Parallel()
	crc, moved := uint32(0x8a9136aa), uint32(0xa282ead8)
	require.Equal(t, crc>>15|crc<<17, masked(make([]byte, 32))-moved)
}

// steps returns the steps in the only event file of dir.
func steps(t *testing.T, dir string) []uint64 {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, EventsDir, "*tfevents*"))
	require.NoError(t, err)
	require.Len(t, paths, 1)
	var all []uint64
	for rest := []byte(read(t, paths[0])); len(rest) > 0; {
		n := binary.LittleEndian.Uint64(rest)
		data := rest[12 : 12+n]
		require.Equal(t, masked(rest[:8]), binary.LittleEndian.Uint32(rest[8:]))
		require.Equal(t, masked(data), binary.LittleEndian.Uint32(rest[12+n:]))
		step := uint64(0)
		if data[9] == 2<<3 { // the step field follows the time
			step, _ = binary.Uvarint(data[10:])
		}
		all, rest = append(all, step), rest[16+n:]
	}
	return all
}

func TestEventsHaveEachStepOnceAfterResume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFolder(t, dir, 0)
	events, err := openEvents(&f.run)
	require.NoError(t, err)
	for step := range 4 {
		f.step(events, report.Values{"step": float64(step), "time": 1795313385, "reward/mean": 0.5})
	}
	require.NoError(t, events.Close(Failed))
	require.Equal(t, []uint64{0, 0, 0, 1, 2, 3}, steps(t, dir)) // the file starts with two records

	f = newFolder(t, dir, 2)
	events, err = openEvents(&f.run)
	require.NoError(t, err)
	f.step(events, report.Values{"step": 2, "reward/mean": 0.5})
	require.NoError(t, events.Close(Finished))
	require.Equal(t, []uint64{0, 0, 0, 1, 2}, steps(t, dir))
}

// broken fails on its second step.
type broken struct{ told, closed int }

func (b *broken) Step(report.Values) error {
	if b.told++; b.told == 2 {
		return errors.New("no space left on device")
	}
	return nil
}

func (b *broken) Close(End) error {
	b.closed++
	return nil
}

func TestFailingSinkIsDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFolder(t, dir, 0)
	bad := &broken{}
	all := Open([]string{spreadsheet}, f.run)
	all.all = append([]named{{"bad", bad}}, all.all...)
	for step := range 4 {
		values := report.Values{"step": float64(step)}
		require.NoError(t, f.lines.Write(report.Line{Values: values}))
		all.Step(values)
	}
	all.Close(Finished)
	all.Close(Failed) // a second Close does nothing
	require.Equal(t, []string{"bad is disabled from step 1 on: no space left on device"}, f.notes)
	require.Equal(t, broken{told: 2, closed: 1}, *bad)
	require.Equal(t, "step\n0\n1\n2\n3\n", read(t, dir, CSVFile))
}

func TestSinkThatCannotOpenIsDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFolder(t, dir, 0)
	require.NoError(t, os.WriteFile(filepath.Join(dir, EventsDir), nil, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, mlflowFile), []byte("nonsense"), 0o644))
	all := Open([]string{tensorBoard, "mlflow=http://127.0.0.1:1", spreadsheet}, f.run)
	all.Step(report.Values{"step": 0})
	all.Close(Finished)
	require.Len(t, f.notes, 2)
	require.Contains(t, f.notes[0], "tensorboard is disabled")
	require.Contains(t, f.notes[1], "mlflow is disabled")
	require.Contains(t, f.notes[1], "remove it to start a new run in MLflow")
	require.Equal(t, "step\n0\n", read(t, dir, CSVFile))

	var none *Sinks
	none.Step(report.Values{"step": 0})
	none.Close(Finished)
}
