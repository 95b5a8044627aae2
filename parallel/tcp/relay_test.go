package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/porttest"
	"github.com/easyrl/easyrl/parallel"
)

// path is one direction of one connection of a rank, in the order in which it makes them.
type path struct {
	rank, number int
	back         bool // to the rank that connected
}

// relay is in the middle of all connections and edits one path.
type relay struct {
	target  path
	edit    func(to io.Writer, from io.Reader) error // copies what comes before and after its change too; nil for none
	changed atomic.Bool                              // whether the change was made

	mu      sync.Mutex
	numbers map[int]int    // of connections, by rank
	carried map[path]int64 // bytes
	running sync.WaitGroup
}

func newRelay() *relay { return &relay{numbers: map[int]int{}, carried: map[path]int64{}} }

// dialer returns how a rank connects.
func (r *relay) dialer(rank int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		far, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		near, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		middle, err := l.Accept()
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		p := path{rank: rank, number: r.numbers[rank]}
		r.numbers[rank]++
		r.mu.Unlock()
		r.running.Go(func() { r.carry(far, middle, p) })
		back := p
		back.back = true
		r.running.Go(func() { r.carry(middle, far, back) })
		return near, nil
	}
}

// counter is a writer that counts.
type counter struct {
	io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Writer.Write(p)
}

func (r *relay) carry(to, from net.Conn, p path) {
	out, err := &counter{Writer: to}, error(nil)
	if p == r.target && r.edit != nil {
		err = r.edit(out, from)
	}
	if err == nil {
		_, err = io.Copy(out, from)
	}
	r.mu.Lock()
	r.carried[p] = out.n
	r.mu.Unlock()
	if err != nil || to.(*net.TCPConn).CloseWrite() != nil {
		to.Close()
		from.Close()
	}
}

const (
	rounds = 12  // in which ranks of relayed exchange data
	direct = 100 // bytes that a rank sends in each besides the collective

	header  = headerSize + tagSize
	message = header + direct + tagSize

	forth = int64(openingSize + helloSize + tagSize) // bytes of a handshake
	back  = int64(openingSize + 1 + 4 + tagSize)
)

// relayed lets two ranks join and exchange data over r. It returns all errors and warnings of each
// rank. A result that is wrong but for an error is an error of the test.
func relayed(t *testing.T, r *relay, silence time.Duration) (errs [2]error, said [2]string) {
	t.Helper()
	master, heard := porttest.Address(t), [2]*notes{newNotes(), newNotes()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ranks sync.WaitGroup
	for i := range 2 {
		ranks.Go(func() {
			cfg := Config{Rank: i, Size: 2, Master: master, Token: []byte(secret), Silence: silence,
				Warn: heard[i].warn, dial: r.dialer(i)}
			w, err := Open(ctx, cfg)
			if err == nil {
				err = errors.Join(exchangeData(t, w), w.Close())
			} else if i == 1 {
				cancel() // rank 0 would wait for another rank 1
			}
			errs[i] = err
		})
	}
	ranks.Wait()
	r.running.Wait()
	for i, n := range heard {
		said[i] = strings.Join(n.all(), "\n")
	}
	return errs, said
}

// exchangeData lets both ranks add and send numbers, and returns an error or sees the right ones.
func exchangeData(t *testing.T, w *World) error {
	g, err := parallel.NewGroup(w, "world", []int{0, 1}, 0)
	if err != nil {
		return err
	}
	ctx, other := context.Background(), 1-w.Rank()
	for i := range rounds {
		data := make([]int64, 20_000) // in frames of several lengths
		for j := range data {
			data[j] = int64(i+j) << w.Rank()
		}
		if err := g.AllReduceSum(ctx, data); err != nil {
			return err
		}
		for j, x := range data {
			if x != 3*int64(i+j) {
				t.Errorf("rank %d, round %d: element %d is %d, expected %d", w.Rank(), i, j, x, 3*(i+j))
				return nil
			}
		}
		sent, got := bytes.Repeat([]byte{byte(i)}, direct), make([]byte, direct)
		post := parallel.Post(ctx, g, other, sent)
		if err := errors.Join(parallel.Recv(ctx, g, other, got), post.Wait()); err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			t.Errorf("rank %d, round %d: received %v", w.Rank(), i, got)
		}
	}
	return g.Barrier(ctx) // nobody leaves before all is checked
}

// alter changes a byte.
func (r *relay) alter(at int64, mask byte) func(io.Writer, io.Reader) error {
	return func(to io.Writer, from io.Reader) error {
		if _, err := io.CopyN(to, from, at); err != nil {
			return err
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(from, b); err != nil {
			return err
		}
		r.changed.Store(true)
		_, err := to.Write([]byte{b[0] ^ mask})
		return err
	}
}

// replace has change replace n bytes.
func (r *relay) replace(at, n int64, change func(old []byte) []byte) func(io.Writer, io.Reader) error {
	return func(to io.Writer, from io.Reader) error {
		if _, err := io.CopyN(to, from, at); err != nil {
			return err
		}
		old := make([]byte, n)
		if _, err := io.ReadFull(from, old); err != nil {
			return err
		}
		r.changed.Store(true)
		_, err := to.Write(change(old))
		return err
	}
}

// paths returns the paths that a relay without edits sees.
func paths() []path {
	var all []path
	for _, p := range []path{{rank: 0, number: 0}, {rank: 0, number: 1}, {rank: 1, number: 0}, {rank: 1, number: 1},
		{rank: 1, number: 2}} {
		back := p
		back.back = true
		all = append(all, p, back)
	}
	return all
}

// Whatever byte changes on the way, ranks say so. They never work with wrong data.
func TestAlteredBytes(t *testing.T) {
	t.Parallel()
	plain := newRelay()
	errs, said := relayed(t, plain, 0)
	require.Equal(t, [2]error{}, errs)
	require.Equal(t, [2]string{}, said)
	const frames = 200
	random := rand.New(rand.NewPCG(33, 4))
	slots := make(chan struct{}, 8)
	for i := range frames {
		p := paths()[i%len(paths())]
		n := plain.carried[p]
		require.Positive(t, n, "%+v", p)
		switch {
		case p.rank == 1 && p.number == 0 && !p.back:
			n = forth
		case p.rank == 1 && p.number == 0:
			n = back + 50 // and some of the table
		case !p.back:
			n -= 2 * message // the last frames may come when all has been received
		}
		at, mask := random.Int64N(n), byte(1+random.IntN(255))
		if i%3 == 0 { // among the first bytes
			at = random.Int64N(min(n, 1500))
		}
		t.Run(fmt.Sprintf("%+v at %d", p, at), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			r := newRelay()
			r.target, r.edit = p, r.alter(at, mask)
			errs, said := relayed(t, r, 0)
			require.True(t, r.changed.Load())
			requireNamed(t, errs, said)
		})
	}
}

// requireNamed requires that a rank names a change. One in a handshake may only be a refusal, after
// which the ranks try again.
func requireNamed(t *testing.T, errs [2]error, said [2]string) {
	t.Helper()
	all := fmt.Sprint(errs, said)
	found := slices.ContainsFunc([]string{
		"is not authentic, the data was changed on the way", "or the data was changed on the way",
		"connection begins with", "protocol version is", "key exchange:",
	}, func(s string) bool { return strings.Contains(all, s) })
	require.True(t, found, all)
	if errs == [2]error{} {
		require.Contains(t, all, "refuse connection from 127.0.0.1:")
		return
	}
	require.Error(t, errs[0])
	require.Error(t, errs[1])
	require.Regexp(t, `rank [01](:| \(127)`, all)
}

// Frames that are dropped, repeated, moved, cut off or made up are found out, even if no other follows.
func TestMovedFrames(t *testing.T) {
	t.Parallel()
	data, control := path{rank: 0, number: 1}, path{rank: 1, number: 0, back: true}
	const first, last = forth, forth + (rounds-1)*message
	drop := func([]byte) []byte { return nil }
	twice := func(old []byte) []byte { return slices.Concat(old, old) }
	swap := func(old []byte) []byte { return slices.Concat(old[len(old)/2:], old[:len(old)/2]) }
	for _, row := range []struct {
		name   string
		path   path
		at, n  int64
		change func(old []byte) []byte
	}{
		{"drop header", data, first + 3*message, header, drop},
		{"drop body", data, first + 4*message + header, message - header, drop},
		{"drop message", data, first + 5*message, message, drop},
		{"drop last message", data, last, message, drop},
		{"drop last body", data, last + header, message - header, drop},
		{"drop half of a body", data, first + 5*message + header, direct / 2, drop},
		{"drop frames of a collective", path{rank: 1, number: 1}, forth + 5*(header+80_000+2*tagSize),
			header + 70_000, drop},
		{"repeat header", data, first + message, header, twice},
		{"repeat body", data, first + 2*message + header, message - header, twice},
		{"repeat message", data, first, message, twice},
		{"repeat hello", data, int64(openingSize), forth - int64(openingSize), twice},
		{"repeat opening", data, 0, int64(openingSize), twice},
		{"swap bytes of a tag", data, first + message + headerSize, tagSize, swap},
		{"make up a message", data, first + message, 0, func([]byte) []byte { return make([]byte, message) }},
		{"drop welcome", path{rank: 0, number: 1, back: true}, int64(openingSize), back - int64(openingSize), drop},
		{"drop table", control, back, 4 + tagSize, drop},
		{"repeat table", control, back, 4 + tagSize, twice},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRelay()
			r.target, r.edit = row.path, r.replace(row.at, row.n, row.change)
			errs, said := relayed(t, r, 8*time.Second)
			require.True(t, r.changed.Load())
			requireNamed(t, errs, said)
		})
	}
}

// A connection that is cut off is an error, not the end of what was sent.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		path path
		at   int64
	}{
		{"between messages", path{rank: 0, number: 1}, forth + 4*message},
		{"in a header", path{rank: 0, number: 1}, forth + 4*message + 5},
		{"between header and body", path{rank: 0, number: 1}, forth + 4*message + header},
		{"in a collective", path{rank: 1, number: 1}, forth + 200_000},
		{"control connection", path{rank: 1, number: 0, back: true}, back},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := newRelay()
			r.target, r.edit = row.path, func(to io.Writer, from io.Reader) error {
				_, _ = io.CopyN(to, from, row.at)
				r.changed.Store(true)
				return io.ErrClosedPipe
			}
			errs, _ := relayed(t, r, 0)
			require.True(t, r.changed.Load())
			for _, err := range errs {
				require.Error(t, err)
				require.Regexp(t, "rank [01].*connection is closed|reset by peer|broken pipe|have not joined",
					err.Error())
			}
		})
	}
}
