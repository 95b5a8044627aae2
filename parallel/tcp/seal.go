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
	"sync"
)

const (
	overhead  = 16       // bytes that sealing adds to a frame
	piece     = 64 << 10 // bytes of the largest frame
	keySize   = 16       // of AES-128
	keyFrames = 1 << 20  // frames under one key, 64 GiB at most
)

// seal encrypts or decrypts the frames of one direction of a connection with AES-GCM. A frame's nonce
// is its number, so a frame that is altered, dropped, repeated or moved does not open, and neither
// does one of another connection or direction, which have other keys.
type seal struct {
	secret []byte // of sha256.Size bytes; the key and the next secret follow from it
	aead   cipher.AEAD
	frames uint64 // so far
}

// forged is the error of a frame that does not open.
type forged struct{ frame uint64 }

func (f forged) Error() string {
	return fmt.Sprintf("frame %d is not authentic, the data was changed on the way", f.frame)
}

// next returns the cipher and the nonce of the next frame. Keys change after keyFrames.
func (s *seal) next() (cipher.AEAD, []byte, error) {
	if s.frames%keyFrames == 0 {
		keys, err := hkdf.Expand(sha256.New, s.secret, "easyrl parallel key", sha256.Size+keySize)
		if err != nil {
			return nil, nil, fmt.Errorf("derive key: %w", err)
		}
		block, err := aes.NewCipher(keys[sha256.Size:])
		if err != nil {
			return nil, nil, err
		}
		if s.aead, err = cipher.NewGCM(block); err != nil {
			return nil, nil, err
		}
		s.secret = keys[:sha256.Size]
	}
	var nonce [12]byte
	binary.LittleEndian.PutUint64(nonce[:], s.frames)
	s.frames++
	return s.aead, nonce[:], nil
}

// seal appends the next frame to out. It has overhead more bytes than data.
func (s *seal) seal(out, data []byte) ([]byte, error) {
	aead, nonce, err := s.next()
	if err != nil {
		return nil, err
	}
	return aead.Seal(out, nonce, data, nil), nil
}

// open decrypts the next frame into memory of its length without overhead.
func (s *seal) open(into, frame []byte) error {
	aead, nonce, err := s.next()
	if err != nil {
		return err
	}
	if _, err := aead.Open(into[:0:len(into)], nonce, frame, nil); err != nil {
		return forged{s.frames - 1}
	}
	return nil
}

// conn is a connection whose frames are sealed in both directions. The receiver knows each frame's
// length before it comes, from the frames before it, so no length travels in the clear. One goroutine
// may send while another one receives.
type conn struct {
	net.Conn
	in        *bufio.Reader
	buffers   *sync.Pool // of *buffer
	sending   seal
	receiving seal
}

// buffer holds a header and a piece as frames.
type buffer [headerSize + piece + 2*overhead]byte

func newBuffers() *sync.Pool { return &sync.Pool{New: func() any { return new(buffer) }} }

func newConn(c net.Conn, buffers *sync.Pool) *conn {
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 2*small), buffers: buffers}
}

// agree derives the keys of both directions from both sides' openings, a Diffie-Hellman exchange of
// the keys in them, and the key that the token gives.
func (c *conn) agree(key []byte, own *ecdh.PrivateKey, client, server []byte, isClient bool) error {
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
	secrets, err := hkdf.Key(sha256.New, slices.Concat(shared, key), slices.Concat(client, server), "easyrl parallel", 2*sha256.Size)
	if err != nil {
		return fmt.Errorf("derive keys: %w", err)
	}
	c.sending.secret, c.receiving.secret = secrets[:sha256.Size], secrets[sha256.Size:]
	if !isClient {
		c.sending.secret, c.receiving.secret = c.receiving.secret, c.sending.secret
	}
	return nil
}

// send seals and writes a header of at most headerSize bytes, unless it is empty, and data in pieces.
// It calls before ahead of each write.
func (c *conn) send(header, data []byte, before func() error) (err error) {
	memory := c.buffers.Get().(*buffer)
	defer c.buffers.Put(memory)
	out := memory[:0]
	if len(header) > 0 {
		if out, err = c.sending.seal(out, header); err != nil {
			return err
		}
	}
	for len(out) > 0 || len(data) > 0 {
		if n := min(len(data), piece); n > 0 {
			if out, err = c.sending.seal(out, data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		if err := before(); err != nil {
			return err
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		out = out[:0]
	}
	return nil
}

// receive fills into with what was sent as a header, or as data, of its length. It calls before ahead
// of each frame.
func (c *conn) receive(into []byte, before func() error) error {
	memory := c.buffers.Get().(*buffer)
	defer c.buffers.Put(memory)
	for len(into) > 0 {
		if err := before(); err != nil {
			return err
		}
		n := min(len(into), piece)
		frame := memory[:n+overhead]
		if _, err := io.ReadFull(c.in, frame); err != nil {
			return err
		}
		if err := c.receiving.open(into[:n], frame); err != nil {
			return err
		}
		into = into[n:]
	}
	return nil
}

func always() error { return nil }

// sendText sends a text and its length.
func (c *conn) sendText(text []byte) error {
	return c.send(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text, always)
}

// receiveText receives what sendText sends, up to most bytes.
func (c *conn) receiveText(most int) ([]byte, error) {
	var length [4]byte
	if err := c.receive(length[:], always); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if uint64(n) > uint64(most) {
		return nil, fmt.Errorf("text has %d bytes, expected at most %d", n, most)
	}
	text := make([]byte, n)
	return text, c.receive(text, always)
}
