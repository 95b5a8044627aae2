package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The handshake. C made the connection, S accepted it.
//
//	C: magic, version, nonce of C
//	S: magic, version, nonce of S
//	C: length and text of its hello, HMAC of "hello", both nonces and the text
//	S: 0, HMAC of "welcome", both nonces and the text; or 1, length and text of a refusal
const (
	magic     = "easyrl parallel "
	version   = 1
	opening   = len(magic) + 1 + nonceSize
	nonceSize = 32
	maxHello  = 1024
	maxReason = 512

	// handshakeTime bounds a stranger's use of a connection.
	handshakeTime = 5 * time.Second
)

// hello is what the connecting rank says of itself.
type hello struct {
	Rank    int
	Size    int
	To      int // the rank that it means to reach
	Run     string
	Addr    string `json:",omitempty"` // where it accepts messages; of control connections
	Channel string `json:",omitempty"` // of the messages to come; empty for a control connection
}

// refusal is the other side's reason to end a handshake. Trying again does not help.
type refusal struct{ reason string }

func (r refusal) Error() string { return r.reason }

// exchange sends this side's opening and returns the nonces, this side's first.
func exchange(c io.ReadWriter) (own, other []byte, err error) {
	own = make([]byte, nonceSize)
	_, _ = rand.Read(own) // never fails
	if _, err := c.Write(append(append([]byte(magic), version), own...)); err != nil {
		return nil, nil, err
	}
	got := make([]byte, opening)
	if _, err := io.ReadFull(c, got[:len(magic)+1]); err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(got[:len(magic)], []byte(magic)) {
		return nil, nil, refusal{fmt.Sprintf("connection begins with %q, expected %q", got[:len(magic)], magic)}
	}
	if v := got[len(magic)]; v != version {
		return nil, nil, refusal{fmt.Sprintf("protocol version is %d, expected %d", v, version)}
	}
	other = got[len(magic)+1:]
	if _, err := io.ReadFull(c, other); err != nil {
		return nil, nil, err
	}
	return own, other, nil
}

// proof returns the HMAC that one side sends.
func proof(key []byte, role string, client, server, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(role), client, server, text} {
		mac.Write(part) // never fails
	}
	return mac.Sum(nil)
}

// introduce is the connecting side's handshake.
func introduce(c net.Conn, key []byte, h hello, until time.Time) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	client, server, err := exchange(c)
	if err != nil {
		return err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHello {
		return refusal{fmt.Sprintf("hello has %d bytes, expected at most %d", len(text), maxHello)}
	}
	message := binary.LittleEndian.AppendUint16(nil, uint16(len(text)))
	message = append(append(message, text...), proof(key, "hello", client, server, text)...)
	if _, err := c.Write(message); err != nil {
		return err
	}
	var refused [1]byte
	if _, err := io.ReadFull(c, refused[:]); err != nil {
		return err
	}
	if refused[0] != 0 {
		reason, err := readText(c, maxReason)
		if err != nil {
			return err
		}
		return refusal{fmt.Sprintf("refused: %q", reason)}
	}
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if !hmac.Equal(got, proof(key, "welcome", client, server, text)) {
		return refusal{"token of the other side differs"}
	}
	return c.SetDeadline(time.Time{})
}

// greet is the accepting side's handshake. admit decides about the hello of a side that
// knows the token, and may use c from then on. If it returns nil and greet an error, c is
// lost.
func greet(c net.Conn, key []byte, until time.Time, admit func(hello) error) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	h, answer, err := interview(c, key)
	if err == nil {
		err = c.SetDeadline(time.Time{}) // what follows fits into the socket's buffer
	}
	if err == nil {
		err = admit(h)
	}
	if err != nil {
		var r refusal
		if errors.As(err, &r) {
			reason := r.reason[:min(len(r.reason), maxReason)]
			_, _ = c.Write(append(binary.LittleEndian.AppendUint16([]byte{1}, uint16(len(reason))), reason...)) // it is refused either way
		}
		return err
	}
	_, err = c.Write(append([]byte{0}, answer...))
	return err
}

// interview reads the hello of a side that proves to know the token, and returns the proof
// to answer with.
func interview(c io.ReadWriter, key []byte) (h hello, answer []byte, err error) {
	server, client, err := exchange(c)
	if err != nil {
		return h, nil, err
	}
	text, err := readText(c, maxHello)
	if err != nil {
		return h, nil, err
	}
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(c, got); err != nil {
		return h, nil, err
	}
	if !hmac.Equal(got, proof(key, "hello", client, server, text)) {
		return h, nil, refusal{"token differs"}
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, nil, refusal{fmt.Sprintf("hello is malformed: %v", err)}
	}
	return h, proof(key, "welcome", client, server, text), nil
}

// readText reads a length and as many bytes.
func readText(c io.Reader, most int) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(length[:]))
	if n > most {
		return nil, refusal{fmt.Sprintf("text has %d bytes, expected at most %d", n, most)}
	}
	text := make([]byte, n)
	_, err := io.ReadFull(c, text)
	return text, err
}
