package tcp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// A receiver that has waited for a while requests a keepalive from the sender, on the connection of their
// stream. Without it, an attacker who drops bytes could make both wait for each other forever: the
// receiver for the rest of a frame, and the sender for the receiver's next call. The keepalive consists
// of ordinary frames, so it is not authentic if something before it is missing. The receiver requests as
// many bytes as the frame that it waits for, so the keepalive ends that wait. The sender answers from a
// goroutine of its own, while it holds the stream's turn, so a keepalive never splits a message.
const (
	opKeepalive      = parallel.Op(math.MaxUint32) // operation in the headers of requests and keepalives
	checksPerSilence = 4                           // number of checks in the time Config.Silence
)

// checkStreams watches the streams on which this rank waits for messages, until the world ends. No other
// goroutine sends on them.
func (w *World) checkStreams() {
	type waiting struct {
		frames uint32 // stream.frames at the last check
		checks int    // number of consecutive checks with that value
	}
	seen := map[*stream]waiting{}
	ticker := time.NewTicker(w.cfg.Silence / checksPerSilence)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.life.Done():
			return
		}
		for r, s := range w.awaiting() {
			last, frames := seen[s], s.frames.Load()
			if last.frames != frames || last.checks == 0 {
				seen[s] = waiting{frames, 1}
				continue
			}
			last.checks++
			seen[s] = last
			switch {
			case last.checks == 2: // only one request for each frame: the sender answers as soon as it can
				request := newHeader(parallel.Label{Op: opKeepalive}, int(s.awaited.Load()))
				_ = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence)) // if it fails, so does send
				_ = s.conn.send(request, nil, nil)                         // if it fails, a later check fails the rank
			case last.checks > 2+checksPerSilence:
				w.fail(r.from, fmt.Errorf("no sign of life for %v on channel %s", w.cfg.Silence, r.channel), false)
			}
		}
	}
}

// awaiting returns the connected streams on which this rank waits for a message.
func (w *World) awaiting() map[route]*stream {
	w.mu.Lock()
	defer w.mu.Unlock()
	streams := map[route]*stream{}
	for r, s := range w.streams {
		if r.to == w.cfg.Rank && s.reading.Load() {
			streams[r] = s
		}
	}
	return streams
}

// answerKeepalives answers the requests of a stream's receiver until the connection ends. to addresses
// the stream's first message; errors name it.
func (w *World) answerKeepalives(s *stream, to parallel.Envelope) {
	for {
		label, length, err := s.conn.receiveHeader(nil)
		if errors.As(err, new(forged)) {
			w.fail(to.Peer, fmt.Errorf("%s: %w", to.In(), err), false)
		}
		if err != nil {
			return // the receiver has left, or its control connection shows why it failed
		}
		zeros := make([]byte, min(length, maxFrame))
		select {
		case s.turn <- struct{}{}:
		case <-w.life.Done():
			return
		}
		err = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence))
		if err == nil {
			err = s.conn.send(newHeader(label, len(zeros)), zeros, nil)
		}
		<-s.turn
		if errors.Is(err, os.ErrDeadlineExceeded) { // half of a frame may be sent, so the stream is unusable
			w.fail(to.Peer, fmt.Errorf("%s: takes no data for %v", to.In(), w.cfg.Silence), false)
		}
		if err != nil {
			return
		}
	}
}
