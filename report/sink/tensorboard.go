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

// EventsDir is the folder of TensorBoard's files in a run's folder.
const EventsDir = "tensorboard"

// eventsName is the pattern of the files' names. TensorBoard reads what has
// "tfevents" in it, in the order of the names.
const eventsName = "events.out.tfevents.%010d.%d.easyrl"

// events is a file of TensorBoard's: records, each a tensorflow.Event in
// protobuf. It has all steps of the run; the files of processes before are taken
// away.
type events struct{ file *os.File }

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
	file, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(eventsName, now.Unix(), os.Getpid())), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewWriter(file)
	err = writeHead(buffered, float64(now.UnixMilli())/1000)
	if err == nil {
		err = report.EachStep(run.metrics(), func(values report.Values) error { return writeRecord(buffered, scalars(values)) })
	}
	if err == nil {
		err = buffered.Flush()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &events{file}, nil
}

// Step is of Sink.
func (e *events) Step(values report.Values) error { return writeRecord(e.file, scalars(values)) }

// Close is of Sink.
func (e *events) Close(End) error { return e.file.Close() }

// The numbers of fields, from tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.
const (
	eventWallTime, eventStep, eventFileVersion, eventSummary, eventSessionLog = 1, 2, 3, 5, 7
	sessionStatus, sessionStart                                               = 1, 1
	summaryValue, valueTag, valueSimple                                       = 1, 1, 2
)

// writeHead writes what a file begins with: its version, and that a session
// starts at step 0, which makes a TensorBoard that is running forget the steps
// that it read from the file before.
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

// event begins a tensorflow.Event. A step of 0 is left out, as protobuf has it.
func event(wall float64, step int64) []byte {
	b := protowire.AppendTag(nil, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(wall))
	if step == 0 {
		return b
	}
	b = protowire.AppendTag(b, eventStep, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(step))
}

// scalars is the tensorflow.Event of a step: each finite value under its name, as
// float32, which is what TensorBoard's scalars are.
func scalars(values report.Values) []byte {
	var summary []byte
	for _, name := range values.Names() {
		x := values[name]
		if name == "step" || name == "time" || !finite(x) {
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

// writeRecord writes data as a record of TFRecord: its length in 8 bytes, the
// length's checksum, the data, the data's checksum, all little-endian, at once.
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

// masked is the CRC-32C of data, rotated right by 15 bits and moved by a
// constant: TFRecord's way of telling a checksum of data from one of data that has
// checksums in it.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}
