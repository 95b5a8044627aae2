package tcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/parallel"
)

// wire is the other side of a connection that has sent all that it sends.
type wire struct {
	net.Conn
	io.Reader
	out bytes.Buffer
}

func (w *wire) Read(p []byte) (int, error)  { return w.Reader.Read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }

// after returns a connection past its handshake that receives data and sends into the wire.
func after(data []byte) (*conn, *wire) {
	w := &wire{Reader: bytes.NewReader(data)}
	c := newConn(w)
	c.sending.secret, c.receiving.secret = bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{1}, 32)
	return c, w
}

// Strangers' bytes end a handshake with an error.
func FuzzHandshake(f *testing.F) {
	key := Config{Token: []byte(secret)}.withDefaults().Token
	_, start, err := newOpening()
	require.NoError(f, err)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(start)
	f.Add(append([]byte(magic), version+1))
	f.Add(append(append([]byte(magic), version), make([]byte, publicSize+helloSize+tagSize)...)) // a key of low order
	f.Add(append(bytes.Clone(start), make([]byte, helloSize+tagSize)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &wire{Reader: bytes.NewReader(data)}
		_, err := newConn(w).readHello(key)
		require.Error(t, err)
		require.Contains(t, []int{0, openingSize, openingSize + 1}, w.out.Len())
	})
}

// A changed stream of messages gives what was sent up to the change, and then an error.
func FuzzFrames(f *testing.F) {
	texts := [][]byte{[]byte("hello"), nil, bytes.Repeat([]byte("0123456789"), 20_000), []byte("bye")}
	send := map[bool][]byte{} // by whether texts are control messages
	for _, control := range []bool{false, true} {
		sender, sent := after(nil)
		for _, text := range texts {
			if control {
				require.NoError(f, sender.sendText(text))
			} else {
				require.NoError(f, sender.send(newHeader(parallel.Label{}, len(text)), text, nil))
			}
		}
		send[control] = sent.out.Bytes()
	}
	receive := func(c *conn, control bool) ([]byte, error) {
		if control {
			return c.receiveText(1 << 20)
		}
		_, length, err := c.receiveHeader(nil)
		if err != nil {
			return nil, err
		}
		text := make([]byte, length) // which is authentic
		return text, c.receiveData(text, nil)
	}
	for _, control := range []bool{false, true} {
		f.Add(control, uint32(0), uint32(0), []byte{})
		f.Add(control, uint32(3), uint32(1), []byte{0xff})
		f.Add(control, uint32(20), uint32(21), []byte{})
		f.Add(control, uint32(70_000), uint32(1), []byte{0xff})
		f.Add(control, uint32(100), uint32(0), send[control][:20])
		f.Add(control, uint32(len(send[control])-1), uint32(1), []byte{})
	}
	f.Fuzz(func(t *testing.T, control bool, at, cut uint32, instead []byte) {
		whole := send[control]
		from := int(at) % (len(whole) + 1)
		to := min(from+int(cut%100_000), len(whole))
		data := bytes.Join([][]byte{whole[:from], instead, whole[to:]}, nil)
		c, _ := after(data)
		for i := 0; ; i++ {
			got, err := receive(c, control)
			if err != nil {
				require.True(t, i == len(texts) || !bytes.Equal(data, whole))
				known := errors.As(err, new(forged)) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
				require.True(t, known, "%v", err)
				return
			}
			require.Less(t, i, len(texts))
			require.True(t, bytes.Equal(texts[i], got))
		}
	})
}

// A message of another connection or of the other direction is not authentic, and a sealed frame is
// not a signed one of the same bytes.
func TestForeignFrames(t *testing.T) {
	t.Parallel()
	key := Config{Token: []byte(secret)}.withDefaults().Token
	h := hello{Rank: 1, Size: 2, Run: "r", Channel: "x"}
	admit := func(hello) error { return nil }
	c, s, faults := shake(t, key, key, h, admit)
	require.Equal(t, [2]error{}, faults)
	_, other, faults := shake(t, key, key, h, admit)
	require.Equal(t, [2]error{}, faults)

	text := []byte("0123456789abcdef")
	sealed, err := c.sending.seal(nil, text)
	require.NoError(t, err)
	into := make([]byte, len(text))
	number := s.receiving.frames
	for name, receiver := range map[string]*seal{"another connection": &other.receiving,
		"back to the sender": &c.receiving} {
		receiver.frames = number
		require.ErrorAs(t, receiver.open(into, sealed), new(forged), name)
	}
	tag := [tagSize]byte(sealed[len(text):])
	require.ErrorAs(t, s.receiving.check(&tag, sealed[:len(text)]), new(forged), "as a signed frame")
	s.receiving.frames = number
	require.NoError(t, s.receiving.open(into, sealed))
	require.Equal(t, text, into)
}

// A rank's notes are handled, or are an error.
func FuzzNote(f *testing.F) {
	f.Add([]byte(`{"Kind":"verdict","Rank":2,"Reason":"loss is NaN"}`))
	f.Add([]byte(`{"Kind":"beat","Waits":[-1]}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, sent := after(nil)
		require.NoError(t, c.sendText(text))
		c, _ = after(sent.out.Bytes())
		n, err := c.receiveNote(100)
		if err != nil {
			return
		}
		w := newWorld(Config{Size: 4}.withDefaults())
		err = newLink(w, 1, "", nil).handle(n)
		if n.Kind == table || n.Kind == verdict || n.Kind == left {
			require.Error(t, err, "only rank 0 sends it")
		}
	})
}

// shake lets two sides shake hands over a pipe, with own keys of the token.
func shake(t *testing.T, client, server []byte, h hello, admit func(hello) error) (c, s *conn, faults [2]error) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	c, s = newConn(a), newConn(b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if faults[0] = c.connectHandshake(client, h, deadline(t)); faults[0] != nil {
			a.Close()
		}
	}()
	if faults[1] = s.acceptHandshake(server, deadline(t), admit); faults[1] != nil {
		b.Close()
	}
	<-done
	return c, s, faults
}

// Both sides of a handshake have the same keys, other ones for each direction and connection.
func TestKeys(t *testing.T) {
	t.Parallel()
	key := Config{Token: []byte(secret)}.withDefaults().Token
	h := hello{Rank: 1, Size: 2, Run: "r", Channel: "x"}
	known := map[string]bool{}
	for range 3 {
		c, s, faults := shake(t, key, key, h, func(got hello) error {
			require.Equal(t, h, got)
			return nil
		})
		require.Equal(t, [2]error{}, faults)
		require.Equal(t, c.sending.secret, s.receiving.secret)
		require.Equal(t, c.receiving.secret, s.sending.secret)
		known[string(c.sending.secret)], known[string(s.sending.secret)] = true, true
	}
	require.Len(t, known, 6)
	other := make([]byte, 32)
	_, _ = rand.Read(other)
	_, _, faults := shake(t, other, key, h, func(hello) error { panic("it does not know the token") })
	require.ErrorContains(t, faults[0], `refused: "token differs, or the data was changed on the way"`)
	require.ErrorContains(t, faults[1], "token differs")
	_, _, faults = shake(t, key, key, h, func(hello) error { return refusal{misfit, "run differs"} })
	require.EqualError(t, faults[0], `refused: "run differs"`)
	require.EqualError(t, faults[1], "run differs")
}

// Keys change on both sides after the same frame, and no frame repeats a nonce under a key.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	a, sent := after(nil)
	require.NoError(t, a.sendText([]byte("one")))
	before := a.sending.aead
	a.sending.frames = keyFrames - 1
	require.NoError(t, a.sendText([]byte("two")))
	require.NotEqual(t, before, a.sending.aead)
	b, _ := after(sent.out.Bytes())
	got, err := b.receiveText(10)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
	b.receiving.frames = keyFrames - 1
	got, err = b.receiveText(10)
	require.NoError(t, err)
	require.Equal(t, "two", string(got))
}
