package sink

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/easyrl/easyrl/report"
)

// EventsDir is the name of the folder of TensorBoard files in a run's folder.
const EventsDir = "tensorboard"

// eventsName is the format of file names. TensorBoard reads files with "tfevents" in
// their names, in name order.
const eventsName = "events.out.tfevents.%010d.%d.easyrl"

// events writes a TensorBoard file: a sequence of records, each a tensorflow.Event in
// protobuf. The file has all steps of the run; opening it removes the files of
// earlier processes.
type events struct{ file *os.File }

// openEvents starts a new file with the steps in the run's metrics.
func openEvents(run *Run) (*events, error) {
	dir := filepath.Join(run.Dir, EventsDir)
	before, err := fs.Glob(os.DirFS(dir), "events.out.tfevents.*.easyrl")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range before {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(eventsName, now.Unix(), os.Getpid())),
		os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewWriter(file)
	err = writeHead(buffered, float64(now.UnixMilli())/1000)
	if err == nil {
		err = report.EachStep(run.metrics(),
			func(values report.Values) error { return writeRecord(buffered, scalars(values)) })
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &events{file}, nil
}

// Step implements sink.
func (e *events) Step(values report.Values) error { return writeRecord(e.file, scalars(values)) }

// Close implements sink.
func (e *events) Close(End) error { return e.file.Close() }

// Field numbers from tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.
const (
	eventWallTime, eventStep, eventFileVersion, eventSummary, eventSessionLog = 1, 2, 3, 5, 7
	sessionStatus, sessionStart                                               = 1, 1
	summaryValue, valueTag, valueSimple                                       = 1, 1, 2
)

// writeHead writes the file version and a session start at step 0. wall is the time in seconds since 1970.
// The session start makes a running TensorBoard drop the steps that it has read from an earlier file.
func writeHead(w io.Writer, wall float64) error {
	version := event(wall, 0)
	version = protowire.AppendTag(version, eventFileVersion, protowire.BytesType)
	version = protowire.AppendString(version, "brain.Event:2")
	if err := writeRecord(w, version); err != nil {
		return err
	}
	start := protowire.AppendTag(nil, sessionStatus, protowire.VarintType)
	start = protowire.AppendVarint(start, sessionStart)
	log := event(wall, 0)
	log = protowire.AppendTag(log, eventSessionLog, protowire.BytesType)
	return writeRecord(w, protowire.AppendBytes(log, start))
}

// event returns the first fields of a tensorflow.Event, to which the caller appends the others. It omits step
// 0, protobuf's default.
func event(wall float64, step int64) []byte {
	b := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(wall))
	if step == 0 {
		return b
	}
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(step))
}

// scalars encodes the tensorflow.Event of a step: each finite value under its name, as
// float32, the type of TensorBoard's scalars.
func scalars(values report.Values) []byte {
	var summary []byte
	for _, name := range values.Names() {
		x := values[name]
		if name == "step" || name == "time" || !report.Finite(x) {
			continue
		}
		value := protowire.AppendTag(nil, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, name)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(x)))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	b := event(values["time"], int64(values["step"]))
	b = protowire.AppendTag(b, eventSummary, protowire.BytesType)
	return protowire.AppendBytes(b, summary)
}

// writeRecord writes data as one TFRecord in a single Write: its length in 8 bytes, the
// length's checksum, the data and the data's checksum, all little-endian.
func writeRecord(w io.Writer, data []byte) error {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+16), uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, masked(b))
	b = append(b, data...)
	b = binary.LittleEndian.AppendUint32(b, masked(data))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write TensorBoard events: %w", err)
	}
	return nil
}

// masked returns the CRC-32C of data, rotated right by 15 bits, plus a constant. TFRecord masks its
// checksums in this way because data may itself contain checksums.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}
