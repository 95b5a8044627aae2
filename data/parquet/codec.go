package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// maxPage is the maximum uncompressed page size in bytes.
const maxPage = 256 << 20

// Codecs, numbered as in Parquet.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecZstd   = 6
	codecLZ4    = 7
)

// codecName returns the name of an unsupported codec.
func codecName(codec int32) string {
	if name, ok := map[int32]string{3: "LZO", 4: "BROTLI", 5: "LZ4 of Hadoop"}[codec]; ok {
		return name
	}
	return fmt.Sprint(codec)
}

// maxRatio returns the codec's maximum compression ratio; a page that claims
// more is corrupt. It returns false for unsupported codecs.
func maxRatio(codec int32) (int64, bool) {
	ratio, ok := map[int32]int64{
		codecNone: 1, codecSnappy: 64, codecGzip: 1040, codecZstd: 1 << 17, codecLZ4: 256,
	}[codec]
	return ratio, ok
}

// decompressor decompresses untrusted pages into buffers of their claimed size. The zero value
// is ready to use; it is not safe for concurrent use.
type decompressor struct{ zstd *zstd.Decoder }

var errSize = errors.New("size differs from the page header's")

// decode decompresses src into dst, whose length is the page's claimed size. Another size is
// an error. codec must be supported and not codecNone.
func (d *decompressor) decode(codec int32, dst, src []byte) error {
	var out []byte
	var err error
	switch codec {
	case codecSnappy:
		if n, e := snappy.DecodedLen(src); e != nil || n != len(dst) {
			return fmt.Errorf("snappy: not %d bytes: %w", len(dst), errors.Join(e, errSize))
		}
		out, err = snappy.Decode(dst, src)
	case codecGzip:
		out, err = gunzip(dst, src)
	case codecZstd:
		if d.zstd == nil {
			if d.zstd, err = newZstd(); err != nil {
				return err
			}
		}
		out, err = d.zstd.DecodeAll(src, dst[:0:len(dst)])
	case codecLZ4:
		out, err = unlz4(dst, src)
	}
	if err == nil && len(out) != len(dst) {
		err = fmt.Errorf("%d bytes, expected %d", len(out), len(dst))
	}
	return err
}

// gunzip decompresses src into dst. It returns dst, which src must fill exactly.
func gunzip(dst, src []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(src))
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(r, dst)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if extra, err := r.Read(make([]byte, 1)); extra > 0 || !errors.Is(err, io.EOF) {
		return nil, errors.New("gzip: more bytes than the page header says")
	}
	return dst[:n], nil
}

// newZstd returns a decoder that starts no goroutines and writes no more than its
// output buffer holds.
func newZstd() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecoderMaxWindow(maxPage))
}

var errLZ4 = errors.New("lz4: malformed block")

// unlz4 decodes one LZ4 block into dst: sequences of literals, and a match, which repeats
// earlier output. It returns the filled part of dst and never writes beyond it.
func unlz4(dst, src []byte) ([]byte, error) {
	limit := len(dst)
	dst = dst[:0]
	for len(src) > 0 {
		token := src[0]
		literals, rest, ok := lengthLZ4(int(token>>4), src[1:], limit-len(dst))
		if !ok || literals > len(rest) || literals > limit-len(dst) {
			return nil, errLZ4
		}
		dst = append(dst, rest[:literals]...)
		src = rest[literals:]
		if len(src) == 0 {
			return dst, nil // the last sequence has no match
		}
		if len(src) < 2 {
			return nil, errLZ4
		}
		offset := int(binary.LittleEndian.Uint16(src))
		match, rest, ok := lengthLZ4(int(token&15), src[2:], limit-len(dst))
		match += 4
		if !ok || offset == 0 || offset > len(dst) || match > limit-len(dst) {
			return nil, errLZ4
		}
		for range match { // byte by byte, because a match may overlap its own output
			dst = append(dst, dst[len(dst)-offset])
		}
		src = rest
	}
	return nil, errLZ4
}

// lengthLZ4 returns the length that starts with n, four bits of a token, and the bytes after
// it. It gives up once the length exceeds limit.
func lengthLZ4(n int, src []byte, limit int) (length int, rest []byte, ok bool) {
	if n < 15 {
		return n, src, true
	}
	for len(src) > 0 && n <= limit {
		b := src[0]
		n += int(b)
		src = src[1:]
		if b != 255 {
			return n, src, true
		}
	}
	return 0, nil, false
}
