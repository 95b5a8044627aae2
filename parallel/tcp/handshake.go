package tcp

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// The handshake. C made the connection, S accepted it. Everything but the openings and one byte is
// sealed, with keys derived from both openings, a Diffie-Hellman exchange and the token. A side that
// opens a frame therefore knows that the other side has the token and saw the same openings.
//
//	C: magic, version, public key of C
//	S: magic, version, public key of S
//	C: hello, padded with spaces
//	S: 0 and the reason of a refusal, empty if C is welcome; or 1, because the hello does not open
const (
	magic      = "easyrl parallel "
	version    = 3
	publicSize = 32 // of X25519
	opening    = len(magic) + 1 + publicSize
	maxHello   = 1024
	maxReason  = 512

	// handshakeTime limits how long a connection may take that has not proved to know the token.
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

// refusal is one side's reason to end a handshake. Another attempt would end in the same way.
type refusal struct {
	cause  cause
	reason string
}

func (r refusal) Error() string { return r.reason }

// newOpening returns a fresh key and the opening that presents it.
func newOpening() (*ecdh.PrivateKey, []byte, error) {
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	return own, append(append([]byte(magic), version), own.PublicKey().Bytes()...), nil
}

// readOpening reads the other side's opening. If its version differs, it returns the opening and an
// error.
func (c *conn) readOpening() ([]byte, error) {
	got := make([]byte, opening)
	if _, err := io.ReadFull(c.in, got[:len(magic)+1]); err != nil {
		return nil, err
	}
	if !bytes.Equal(got[:len(magic)], []byte(magic)) {
		return nil, refusal{protocol, fmt.Sprintf("connection begins with %q, expected %q", got[:len(magic)], magic)}
	}
	if _, err := io.ReadFull(c.in, got[len(magic)+1:]); err != nil { // as long in all versions
		return nil, err
	}
	if v := got[len(magic)]; v != version {
		const advice = "all ranks need the same release of easyrl"
		return got, refusal{release, fmt.Sprintf("protocol version is %d, expected %d: %s", v, version, advice)}
	}
	return got, nil
}

// connectHandshake is the connecting side's handshake.
func (c *conn) connectHandshake(key []byte, h hello, until time.Time) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > maxHello {
		return refusal{misfit, fmt.Sprintf("hello has %d bytes, expected at most %d", len(text), maxHello)}
	}
	text = append(text, bytes.Repeat([]byte{' '}, maxHello-len(text))...)
	own, client, err := newOpening()
	if err != nil {
		return err
	}
	if _, err := c.Write(client); err != nil {
		return err
	}
	server, err := c.readOpening()
	if err != nil {
		return err
	}
	if err := c.deriveKeys(key, own, client, server, true); err != nil {
		return err
	}
	if err := c.sendSealed(text); err != nil {
		return err
	}
	status, err := c.in.ReadByte()
	if err != nil {
		return err
	}
	if status != 0 {
		return refusal{noToken, `refused: "token differs, or the data was changed on the way"`}
	}
	reason, err := c.receiveText(maxReason)
	switch {
	case errors.As(err, new(forged)):
		return refusal{noToken, "token of the other side differs, or the data was changed on the way"}
	case err != nil:
		return err
	case len(reason) > 0:
		return refusal{misfit, fmt.Sprintf("refused: %q", reason)}
	}
	return c.SetDeadline(time.Time{})
}

// acceptHandshake is the accepting side's handshake. It calls admit at most once, with the hello of a
// side that knows the token. If admit returns nil but acceptHandshake an error, the side was admitted,
// and then its connection broke.
func (c *conn) acceptHandshake(key []byte, until time.Time, admit func(hello) error) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	h, err := c.readHello(key)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil { // what follows fits into the socket's buffer
		return err
	}
	var refused refusal
	err = admit(h)
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	reason := refused.reason[:min(len(refused.reason), maxReason)]
	if _, fault := c.Write([]byte{0}); fault != nil {
		return errors.Join(err, fault)
	}
	return errors.Join(err, c.sendText([]byte(reason)))
}

// readHello reads the hello of a side that proves to know the token.
func (c *conn) readHello(key []byte) (h hello, err error) {
	client, err := c.readOpening()
	if client == nil {
		return h, err // before the cost of a key
	}
	own, server, fault := newOpening()
	if fault != nil {
		return h, fault
	}
	if _, fault := c.Write(server); err != nil || fault != nil { // a side of another version can read ours
		return h, errors.Join(err, fault)
	}
	if err := c.deriveKeys(key, own, client, server, false); err != nil {
		return h, err
	}
	text := make([]byte, maxHello)
	err = c.receiveSealed(text, nil)
	if errors.As(err, new(forged)) {
		_, _ = c.Write([]byte{1}) // it is refused either way
		return h, refusal{noToken, "token differs, or the data was changed on the way"}
	}
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, refusal{misfit, fmt.Sprintf("hello is malformed: %v", err)}
	}
	return h, nil
}
