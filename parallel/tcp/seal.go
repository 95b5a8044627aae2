package tcp

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
)

const (
	tagSize   = 16       // bytes that protection adds to a frame
	maxFrame  = 64 << 10 // bytes of the largest frame, without its tag
	keySize   = 16       // of AES-128
	keyFrames = 1 << 20  // frames under one key, 64 GiB at most
)

// seal protects the frames of one direction of a connection with AES-GCM. A sealed frame is encrypted;
// a signed one travels in clear with a tag after it.
//
// A frame's nonce is its number, so a frame that is altered, dropped, repeated or moved is not
// authentic. A frame of another connection or direction is not authentic either, because keys differ.
// A signed frame cannot take the place of a sealed one, since GCM authenticates how many bytes are
// encrypted and how many are not. No nonce repeats under a key: numbers only increase, and each
// direction has keys of its own.
type seal struct {
	secret []byte // of sha256.Size bytes; the key and the next secret follow from it
	aead   cipher.AEAD
	frames uint64   // so far
	nonce  [12]byte // of the latest frame
}

// forged is the error of a frame that is not authentic.
type forged struct{ frame uint64 }

func (f forged) Error() string {
	return fmt.Sprintf("frame %d is not authentic, the data was changed on the way", f.frame)
}

// next advances to the nonce of the next frame, and to another key after keyFrames.
func (s *seal) next() error {
	if s.frames%keyFrames == 0 {
		keys, err := hkdf.Expand(sha256.New, s.secret, "easyrl parallel key", sha256.Size+keySize)
		if err != nil {
			return fmt.Errorf("derive key: %w", err)
		}
		block, err := aes.NewCipher(keys[sha256.Size:])
		if err != nil {
			return err
		}
		if s.aead, err = cipher.NewGCM(block); err != nil {
			return err
		}
		s.secret = keys[:sha256.Size]
	}
	binary.LittleEndian.PutUint64(s.nonce[:], s.frames)
	s.frames++
	return nil
}

// seal appends the next frame, encrypted, to out. It has tagSize more bytes than text.
func (s *seal) seal(out, text []byte) ([]byte, error) {
	if err := s.next(); err != nil {
		return nil, err
	}
	return s.aead.Seal(out, s.nonce[:], text, nil), nil
}

// open decrypts the next frame into memory of its length without tagSize.
func (s *seal) open(into, frame []byte) error {
	if err := s.next(); err != nil {
		return err
	}
	if _, err := s.aead.Open(into[:0:len(into)], s.nonce[:], frame, nil); err != nil {
		return forged{s.frames - 1}
	}
	return nil
}

// sign authenticates data as the next frame and stores its tag.
func (s *seal) sign(tag *[tagSize]byte, data []byte) error {
	if err := s.next(); err != nil {
		return err
	}
	s.aead.Seal(tag[:0], s.nonce[:], nil, data)
	return nil
}

// check verifies the tag of data, the next frame.
func (s *seal) check(tag *[tagSize]byte, data []byte) error {
	if err := s.next(); err != nil {
		return err
	}
	if _, err := s.aead.Open(nil, s.nonce[:], tag[:], data); err != nil {
		return forged{s.frames - 1}
	}
	return nil
}

// conn is a connection whose frames are protected in both directions. Handshakes, headers and control
// messages are sealed, the data of messages is signed: encrypting it too would take several times as
// long. Frames have no lengths: the receiver knows each one from the frames before it. One goroutine
// may send while another one receives.
type conn struct {
	net.Conn
	in        *bufio.Reader
	sending   seal
	receiving seal

	// Memory of frames, so that a message allocates nothing.
	sealed [2][]byte // sent and received
	tags   [2][tagSize]byte
	parts  [3][]byte // of a write: header, data, tag
	writes net.Buffers
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, in: bufio.NewReaderSize(c, 2*smallMessage)} }

// deriveKeys derives the keys of both directions from both sides' openings, a Diffie-Hellman exchange of
// the keys in them, and the key that the token gives.
func (c *conn) deriveKeys(key []byte, own *ecdh.PrivateKey, client, server []byte, isClient bool) error {
	other := client
	if isClient {
		other = server
	}
	public, err := own.Curve().NewPublicKey(other[len(other)-publicSize:])
	if err != nil {
		return err
	}
	shared, err := own.ECDH(public)
	if err != nil {
		return refusal{protocol, fmt.Sprintf("key exchange: %v", err)}
	}
	secret, salt := slices.Concat(shared, key), slices.Concat(client, server)
	secrets, err := hkdf.Key(sha256.New, secret, salt, "easyrl parallel", 2*sha256.Size)
	if err != nil {
		return fmt.Errorf("derive keys: %w", err)
	}
	c.sending.secret = secrets[:sha256.Size]
	c.receiving.secret = secrets[sha256.Size:]
	if !isClient {
		c.sending.secret, c.receiving.secret = c.receiving.secret, c.sending.secret
	}
	return nil
}

// send sends a message: a header, sealed, and data in signed frames. It calls before, unless that is
// nil, ahead of each write. An error ends its use: half of a frame may have been sent.
func (c *conn) send(header, data []byte, before func() error) error {
	frame, err := c.sending.seal(c.sealed[0][:0], header)
	if err != nil {
		return err
	}
	c.sealed[0] = frame
	parts := append(c.parts[:0], frame)
	for len(parts) > 0 || len(data) > 0 {
		if n := min(len(data), maxFrame); n > 0 {
			if err := c.sending.sign(&c.tags[0], data[:n]); err != nil {
				return err
			}
			parts = append(parts, data[:n], c.tags[0][:])
			data = data[n:]
		}
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		c.writes = parts
		if _, err := c.writes.WriteTo(c.Conn); err != nil {
			return err
		}
		parts = c.parts[:0]
	}
	return nil
}

// receiveData fills into with the data of a message of its length, which is authentic only if no error
// is returned. It calls before, unless that is nil, ahead of each frame.
func (c *conn) receiveData(into []byte, before func() error) error {
	tag := &c.tags[1]
	for len(into) > 0 {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		n := min(len(into), maxFrame)
		if _, err := io.ReadFull(c.in, into[:n]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.in, tag[:]); err != nil {
			return err
		}
		if err := c.receiving.check(tag, into[:n]); err != nil {
			return err
		}
		into = into[n:]
	}
	return nil
}

// sendSealed sends a text as sealed frames.
func (c *conn) sendSealed(text []byte) error {
	for part := range slices.Chunk(text, maxFrame) {
		frame, err := c.sending.seal(c.sealed[0][:0], part)
		if err != nil {
			return err
		}
		c.sealed[0] = frame
		if _, err := c.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

// receiveSealed fills into with a text or header of its length. It calls before, unless that is nil,
// ahead of each frame.
func (c *conn) receiveSealed(into []byte, before func() error) error {
	for part := range slices.Chunk(into, maxFrame) {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		frame := slices.Grow(c.sealed[1][:0], len(part)+tagSize)[:len(part)+tagSize]
		c.sealed[1] = frame
		if _, err := io.ReadFull(c.in, frame); err != nil {
			return err
		}
		if err := c.receiving.open(part, frame); err != nil {
			return err
		}
	}
	return nil
}

// sendText sends a text and its length.
func (c *conn) sendText(text []byte) error {
	if err := c.sendSealed(binary.LittleEndian.AppendUint32(nil, uint32(len(text)))); err != nil {
		return err
	}
	return c.sendSealed(text)
}

// receiveText receives what sendText sends, up to limit bytes.
func (c *conn) receiveText(limit int) ([]byte, error) {
	var length [4]byte
	if err := c.receiveSealed(length[:], nil); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("text has %d bytes, expected at most %d", n, limit)
	}
	text := make([]byte, n)
	return text, c.receiveSealed(text, nil)
}
