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
	tagSize   = 16       // bytes of a frame's GCM tag
	maxFrame  = 64 << 10 // bytes of the largest frame, without its tag
	keySize   = 16       // bytes of an AES-128 key
	keyFrames = 1 << 20  // frames under one key: at most 64 GiB, which are 2^32 blocks of AES

	readBuffer = 8 << 10 // bytes of conn.in: room for a small message and its header
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
	secret []byte      // sha256.Size bytes, from which the next key and the next secret are derived
	aead   cipher.AEAD // under the current key; nil before the first frame
	frames uint64      // number of frames so far, under all keys
	nonce  [12]byte    // nonce of the latest frame
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

// seal encrypts text as the next frame and appends it to out: as many bytes as text, and a tag.
func (s *seal) seal(out, text []byte) ([]byte, error) {
	if err := s.next(); err != nil {
		return nil, err
	}
	return s.aead.Seal(out, s.nonce[:], text, nil), nil
}

// open decrypts the next frame into memory that is tagSize bytes shorter. Its error is forged if the frame
// is not authentic.
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

// check verifies the tag of data, the next frame. Its error is forged if the frame is not authentic.
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
// long. Frames carry no lengths: the receiver knows each length from the protocol or from the frames
// before. One goroutine may send while another one receives.
type conn struct {
	net.Conn
	in        *bufio.Reader
	sending   seal
	receiving seal

	// Memory that is reused, so that a message allocates nothing. Each goroutine uses its own fields.
	sendFrame []byte // sealed frame to send
	recvFrame []byte // sealed frame received
	sendTag   [tagSize]byte
	recvTag   [tagSize]byte
	parts     [3][]byte   // backing array of the parts of one write: header, data, tag
	writes    net.Buffers // the same parts; WriteTo consumes it, and a field does not escape to the heap
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, in: bufio.NewReaderSize(c, readBuffer)} }

// deriveKeys derives the keys of both directions from the openings of client and server, a
// Diffie-Hellman exchange of the public keys in them, and key, which is derived from the token. own is
// this side's private key. It returns a refusal if the other side's public key is not valid.
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

// send sends a message: a header in a sealed frame, and data in signed frames. The first write holds the
// header and the first frame of data. send calls beforeWrite, unless that is nil, ahead of each write.
// After an error c must not be used, because half of a frame may have been sent.
func (c *conn) send(header, data []byte, beforeWrite func() error) error {
	frame, err := c.sending.seal(c.sendFrame[:0], header)
	if err != nil {
		return err
	}
	c.sendFrame = frame
	parts := append(c.parts[:0], frame)
	for len(parts) > 0 || len(data) > 0 {
		if n := min(len(data), maxFrame); n > 0 {
			if err := c.sending.sign(&c.sendTag, data[:n]); err != nil {
				return err
			}
			parts = append(parts, data[:n], c.sendTag[:])
			data = data[n:]
		}
		if beforeWrite != nil {
			if err := beforeWrite(); err != nil {
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

// receiveData fills into with the data of a message, which has that length. The data is authentic only if
// the error is nil. receiveData calls beforeFrame, unless that is nil, ahead of each frame.
func (c *conn) receiveData(into []byte, beforeFrame func() error) error {
	for len(into) > 0 {
		if beforeFrame != nil {
			if err := beforeFrame(); err != nil {
				return err
			}
		}
		n := min(len(into), maxFrame)
		if _, err := io.ReadFull(c.in, into[:n]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.in, c.recvTag[:]); err != nil {
			return err
		}
		if err := c.receiving.check(&c.recvTag, into[:n]); err != nil {
			return err
		}
		into = into[n:]
	}
	return nil
}

// sendSealed sends a text as sealed frames.
func (c *conn) sendSealed(text []byte) error {
	for part := range slices.Chunk(text, maxFrame) {
		frame, err := c.sending.seal(c.sendFrame[:0], part)
		if err != nil {
			return err
		}
		c.sendFrame = frame
		if _, err := c.Write(frame); err != nil {
			return err
		}
	}
	return nil
}

// receiveSealed fills into with a text or header, which has that length. It calls beforeFrame, unless that
// is nil, ahead of each frame.
func (c *conn) receiveSealed(into []byte, beforeFrame func() error) error {
	for part := range slices.Chunk(into, maxFrame) {
		if beforeFrame != nil {
			if err := beforeFrame(); err != nil {
				return err
			}
		}
		frame := slices.Grow(c.recvFrame[:0], len(part)+tagSize)[:len(part)+tagSize]
		c.recvFrame = frame
		if _, err := io.ReadFull(c.in, frame); err != nil {
			return err
		}
		if err := c.receiving.open(part, frame); err != nil {
			return err
		}
	}
	return nil
}

// sendText sends the length of a text, as 4 bytes, and the text.
func (c *conn) sendText(text []byte) error {
	if err := c.sendSealed(binary.LittleEndian.AppendUint32(nil, uint32(len(text)))); err != nil {
		return err
	}
	return c.sendSealed(text)
}

// receiveText receives a text of sendText. It fails if the text has more than limit bytes.
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
