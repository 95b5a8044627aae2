package tcp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// wire is the other side of a connection that has sent all that it sends.
type wire struct {
	io.Reader
	out bytes.Buffer
}

func (w *wire) Write(p []byte) (int, error) { return w.out.Write(p) }

// Strangers' bytes end a handshake with an error.
func FuzzHandshake(f *testing.F) {
	key := Config{Token: []byte(secret)}.withDefaults().Token
	nonce := bytes.Repeat([]byte{7}, nonceSize)
	start := append(append([]byte(magic), version), nonce...)
	text := []byte(`{"Rank":1}`)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(start)
	f.Add(append(append(binary.LittleEndian.AppendUint16(start, uint16(len(text))), text...), make([]byte, 32)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &wire{Reader: bytes.NewReader(data)}
		_, answer, err := interview(c, key)
		require.Error(t, err)
		require.Nil(t, answer)
		require.Len(t, c.out.Bytes(), opening)
	})
}

// A control connection's bytes give a note or an error, and allocate no more than allowed.
func FuzzNote(f *testing.F) {
	var good bytes.Buffer
	require.NoError(f, writeNote(&good, note{Kind: verdict, Rank: 2, Reason: "loss is NaN"}))
	f.Add(good.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := readNote(bytes.NewReader(data), 100)
		if err != nil {
			return
		}
		var again bytes.Buffer
		require.NoError(t, writeNote(&again, n))
		m, err := readNote(&again, maxNote)
		require.NoError(t, err)
		require.Equal(t, n.Kind, m.Kind)
		w := newWorld(Config{Size: 4}.withDefaults())
		err = newLink(w, 1, "", nil).handle(n)
		if n.Kind == table || n.Kind == verdict || n.Kind == left {
			require.Error(t, err, "only rank 0 sends it")
		}
	})
}

// A hello that is signed with the key is taken; a changed one is not.
func TestHello(t *testing.T) {
	t.Parallel()
	key := Config{Token: []byte(secret)}.withDefaults().Token
	for _, spoil := range []bool{false, true} {
		c, s := net.Pipe()
		go func() {
			defer c.Close()
			var own, other []byte
			own = bytes.Repeat([]byte{7}, nonceSize)
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				c.Write(append(append([]byte(magic), version), own...))
			}()
			got := make([]byte, opening)
			if _, err := io.ReadFull(c, got); err != nil {
				return
			}
			<-wrote
			other = got[len(magic)+1:]
			text := []byte(`{"Rank":1,"Size":2}`)
			sum := proof(key, "hello", own, other, text)
			if spoil {
				text[8] = '2'
			}
			c.Write(append(append(binary.LittleEndian.AppendUint16(nil, uint16(len(text))), text...), sum...))
		}()
		h, answer, err := interview(s, key)
		if spoil {
			require.Equal(t, refusal{"token differs"}, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, hello{Rank: 1, Size: 2}, h)
		require.Len(t, answer, 32)
	}
}
