package tcp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/easyrl/easyrl/parallel"
)

// A receiver that has waited for long asks the sender for a sign of life, on the connection that they
// share. Without it, bytes that are lost on the way could let both wait for each other forever. The
// sign consists of frames like any others, so it does not open if something before it is missing. It
// is long enough to end the receiver's wait.
const (
	sign = parallel.Op(math.MaxUint32) // of questions and signs
	asks = 4                           // times in Config.Silence that guard looks
)

// guard watches the streams on which this rank waits for messages, until the world ends.
func (w *World) guard() {
	type sight struct {
		frames uint32
		times  int // in a row that guard has seen the stream wait at this frame
	}
	seen := map[*stream]sight{}
	every := time.NewTicker(w.cfg.Silence / asks)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-w.life.Done():
			return
		}
		for r, s := range w.awaiting() {
			last, frames := seen[s], s.frames.Load()
			if last.frames != frames || last.times == 0 {
				seen[s] = sight{frames, 1}
				continue
			}
			last.times++
			seen[s] = last
			switch {
			case last.times == 2: // asking more often than it is answered helps nobody
				question := newHeader(parallel.Label{Op: sign}, int(s.within.Load()))
				_ = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence)) // if it fails, so does sending
				_ = s.conn.send(question, nil, always)                     // then no answer comes
			case last.times > 2+asks:
				w.fail(r.from, fmt.Errorf("no sign of life for %v on channel %s", w.cfg.Silence, r.channel), false)
			}
		}
	}
}

// awaiting returns the connected streams on which a message is awaited.
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

// answer gives the receiver of a stream signs of life until the connection ends.
func (w *World) answer(s *stream, at parallel.Envelope) {
	for {
		label, length, err := receiveHeader(s.conn, always)
		if errors.As(err, new(forged)) {
			w.fail(at.Peer, fmt.Errorf("%s: %w", at.In(), err), false)
		}
		if err != nil {
			return // the receiver has left, or its control connection says more
		}
		zeros := make([]byte, min(length, piece))
		select {
		case s.turn <- struct{}{}:
		case <-w.life.Done():
			return
		}
		err = s.conn.SetWriteDeadline(time.Now().Add(w.cfg.Silence))
		if err == nil {
			err = s.conn.send(newHeader(label, len(zeros)), zeros, always)
		}
		<-s.turn
		if errors.Is(err, os.ErrDeadlineExceeded) { // perhaps half of the frame is under way
			w.fail(at.Peer, fmt.Errorf("%s: takes no data for %v", at.In(), w.cfg.Silence), false)
		}
		if err != nil {
			return
		}
	}
}
