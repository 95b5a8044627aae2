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

// The handshake. C has made the connection, S has accepted it. All messages except the openings and the
// status byte are sealed, with keys derived from both openings, a Diffie-Hellman exchange and the token.
// A side that can open a frame therefore knows that the other side has the token and saw the same
// openings.
//
//	C: opening: magic, version, public key of C
//	S: opening: magic, version, public key of S
//	C: hello, padded with spaces
//	S: status, and the reason of a refusal, which is empty if S accepts C; or statusForged alone
const (
	magic       = "easyrl parallel "
	version     = 5
	publicSize  = 32 // bytes of an X25519 public key
	openingSize = len(magic) + 1 + publicSize
	helloSize   = 1024
	maxReason   = 512 // bytes of a refusal's reason, and of a note's

	// handshakeTime is how long a connection may take to prove that it knows the token.
	handshakeTime = 5 * time.Second
)

// Status bytes of S.
const (
	statusRead   = 0 // S has read the hello
	statusForged = 1 // S cannot open the hello
	statusTaken  = 2 // S refuses the hello because of taken
)

// hello introduces the connecting rank.
type hello struct {
	Rank int
	Size int
	To   int // the rank that it wants to reach
	Run  string

	Numerics string `json:",omitempty"`
	Addr     string `json:",omitempty"` // address at which it accepts messages; only for a control connection
	Channel  string `json:",omitempty"` // channel of the connection's messages; empty for a control connection
	Ticket   string // see World.tickets: that of the sender in a control connection, else that of the receiver
}

// refusal is an error of a handshake that another attempt would not avoid.
type refusal struct {
	cause  cause
	reason string
}

func (r refusal) Error() string { return r.reason }

// newOpening returns a fresh private key and an opening with its public key.
func newOpening() (*ecdh.PrivateKey, []byte, error) {
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	return own, append(append([]byte(magic), version), own.PublicKey().Bytes()...), nil
}

// readOpening reads the other side's opening. If only its version differs, it returns the opening
// together with a refusal.
func (c *conn) readOpening() ([]byte, error) {
	got := make([]byte, openingSize)
	if _, err := io.ReadFull(c.in, got[:len(magic)+1]); err != nil {
		return nil, err
	}
	if !bytes.Equal(got[:len(magic)], []byte(magic)) {
		return nil, refusal{protocol, fmt.Sprintf("connection begins with %q, expected %q", got[:len(magic)], magic)}
	}
	if _, err := io.ReadFull(c.in, got[len(magic)+1:]); err != nil { // all versions have this length
		return nil, err
	}
	if v := got[len(magic)]; v != version {
		const advice = "all ranks need the same release of easyrl"
		return got, refusal{release, fmt.Sprintf("protocol version is %d, expected %d: %s", v, version, advice)}
	}
	return got, nil
}

// connectHandshake is the connecting side's handshake. key is derived from the token. The result is a
// refusal if another attempt would fail too. Without an error, c has no deadline afterwards.
func (c *conn) connectHandshake(key []byte, h hello, deadline time.Time) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(text) > helloSize {
		return refusal{misfit, fmt.Sprintf("hello has %d bytes, expected at most %d", len(text), helloSize)}
	}
	text = append(text, bytes.Repeat([]byte{' '}, helloSize-len(text))...)
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
	if status == statusForged {
		return refusal{noToken, `refused: "token differs, or the data was changed on the way"`}
	}
	reason, err := c.receiveText(maxReason)
	switch {
	case errors.As(err, new(forged)): // S has other keys, or another process answers in its place
		return refusal{noToken, "token of the other side differs, or the data was changed on the way"}
	case err != nil:
		return err
	case status == statusTaken:
		return refusal{taken, fmt.Sprintf("refused: %q", reason)}
	case len(reason) > 0:
		return refusal{misfit, fmt.Sprintf("refused: %q", reason)}
	}
	return c.SetDeadline(time.Time{})
}

// acceptHandshake is the accepting side's handshake. key is derived from the token. It calls admit at most
// once, with the hello of a side that knows the token, and sends the reason if admit returns a refusal.
// If admit returns nil and acceptHandshake returns an error, the connection broke after the side was
// admitted.
func (c *conn) acceptHandshake(key []byte, deadline time.Time, admit func(hello) error) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	h, err := c.readHello(key)
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil { // the answer fits into the socket's buffer
		return err
	}
	var refused refusal
	err = admit(h)
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	reason := refused.reason[:min(len(refused.reason), maxReason)]
	status := byte(statusRead)
	if err != nil && refused.cause == taken {
		status = statusTaken
	}
	if _, fault := c.Write([]byte{status}); fault != nil {
		return errors.Join(err, fault)
	}
	return errors.Join(err, c.sendText([]byte(reason)))
}

// readHello exchanges openings and reads the hello. The hello proves that the other side knows the token.
func (c *conn) readHello(key []byte) (h hello, err error) {
	client, versionErr := c.readOpening()
	if client == nil {
		return h, versionErr // it is no opening, so spare the cost of a key
	}
	own, server, err := newOpening()
	if err != nil {
		return h, err
	}
	// A side of another version gets an opening too, so that it can report the version.
	if _, err := c.Write(server); versionErr != nil || err != nil {
		return h, errors.Join(versionErr, err)
	}
	if err := c.deriveKeys(key, own, client, server, false); err != nil {
		return h, err
	}
	text := make([]byte, helloSize)
	err = c.receiveSealed(text, nil)
	if errors.As(err, new(forged)) {
		_, _ = c.Write([]byte{statusForged}) // if this fails, the side is refused without a status
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
