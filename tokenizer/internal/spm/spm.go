// Package spm reads SentencePiece's tokenizer.model files.
package spm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The types of pieces, numbered as in sentencepiece_model.proto.
const (
	Normal  = 1
	Unknown = 2
	Control = 3 // such as <s>; never matched in the text
	User    = 4 // matched in the text before any merge
	Unused  = 5
	Byte    = 6 // such as <0x0A>
)

// Piece is an entry of the vocabulary.
type Piece struct {
	Text  string
	Score float32 // pairs that form a piece of a higher score merge first
	Type  int
}

// Model is the content of a BPE model's file.
type Model struct {
	Pieces       []Piece // by id
	ByteFallback bool    // unknown characters become Byte pieces
	Prefix       bool    // put a space before text
	Squeeze      bool    // remove spaces at the ends and collapse runs
	BOS, EOS     int32   // ids, which may be -1 for none

	kind uint64 // model_type: 2 is BPE; 1 is the default
}

// field is a field of a protocol buffer: a number, or bytes.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
}

var errMalformed = errors.New("not a SentencePiece model: truncated or malformed")

// each calls yield with the fields of a message, in order, up to the first error.
func each(b []byte, yield func(field) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(b)
			f.value = uint64(bits)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}

// Parse parses a tokenizer.model. It returns an error if the model is not BPE or
// needs normalization rules.
func Parse(b []byte) (*Model, error) {
	m := &Model{Prefix: true, Squeeze: true, BOS: 1, EOS: 2, kind: 1}
	err := each(b, func(f field) error {
		switch f.number {
		case 1: // pieces
			return m.piece(f.bytes)
		case 2: // trainer_spec
			return m.trainer(f.bytes)
		case 3: // normalizer_spec
			return m.normalizer(f.bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(m.Pieces) == 0 {
		return nil, errors.New("not a SentencePiece model: no pieces")
	}
	if m.kind != 2 {
		names := map[uint64]string{1: "UNIGRAM", 3: "WORD", 4: "CHAR"}
		return nil, fmt.Errorf("model type %d %s is not supported, expected BPE", m.kind, names[m.kind])
	}
	return m, nil
}

// piece parses a SentencePiece message and adds the piece.
func (m *Model) piece(b []byte) error {
	p := Piece{Type: Normal}
	err := each(b, func(f field) error {
		switch f.number {
		case 1: // piece
			p.Text = string(f.bytes)
		case 2: // score
			p.Score = math.Float32frombits(uint32(f.value))
		case 3: // type
			p.Type = int(int32(f.value))
		}
		return nil
	})
	if err == nil && p.Text == "" {
		err = fmt.Errorf("piece %d is empty", len(m.Pieces))
	}
	m.Pieces = append(m.Pieces, p)
	return err
}

// trainer parses a TrainerSpec.
func (m *Model) trainer(b []byte) error {
	suffix := false
	err := each(b, func(f field) error {
		switch f.number {
		case 3: // model_type
			m.kind = f.value
		case 24: // treat_whitespace_as_suffix
			suffix = f.value != 0
		case 35: // byte_fallback
			m.ByteFallback = f.value != 0
		case 41: // bos_id
			m.BOS = int32(f.value)
		case 42: // eos_id
			m.EOS = int32(f.value)
		}
		return nil
	})
	if err == nil && suffix {
		err = errors.New("treat_whitespace_as_suffix is not supported, expected false")
	}
	return err
}

// normalizer parses a NormalizerSpec.
func (m *Model) normalizer(b []byte) error {
	return each(b, func(f field) error {
		switch {
		case f.number == 2 && len(f.bytes) > 0: // precompiled_charsmap
			return errors.New("normalisation rules are not supported; use a tokenizer.json")
		case f.number == 3: // add_dummy_prefix
			m.Prefix = f.value != 0
		case f.number == 4: // remove_extra_whitespaces
			m.Squeeze = f.value != 0
		case f.number == 5 && f.value == 0: // escape_whitespaces
			return errors.New("escape_whitespaces false is not supported, expected true")
		}
		return nil
	})
}

// Merge joins two pieces into one.
type Merge struct {
	Left, Right string
	Rank        int32 // from 0; merges of lower rank come first
}

// Merges returns the pairs of pieces whose concatenation is a Normal piece. A piece of a
// higher score has a lower rank; pieces of equal scores have the same.
func (m *Model) Merges() []Merge {
	parts := make(map[string]bool, len(m.Pieces)) // pieces that may be a part of another
	scores := make([]float32, 0, len(m.Pieces))
	for _, p := range m.Pieces {
		if p.Type == Normal || p.Type == User || p.Type == Unused {
			parts[p.Text] = true
			scores = append(scores, p.Score)
		}
	}
	slices.SortFunc(scores, func(a, b float32) int { return cmp.Compare(b, a) })
	scores = slices.Compact(scores)
	var merges []Merge
	for _, p := range m.Pieces {
		if p.Type != Normal || len(p.Text) > maxPiece {
			continue
		}
		rank, _ := slices.BinarySearchFunc(scores, p.Score, func(a, b float32) int { return cmp.Compare(b, a) })
		for i := range p.Text {
			if i == 0 || !utf8.RuneStart(p.Text[i]) {
				continue
			}
			left, right := p.Text[:i], p.Text[i:]
			if parts[left] && parts[right] {
				merges = append(merges, Merge{left, right, int32(rank)})
			}
		}
	}
	return merges
}

// maxPiece bounds the length of merged pieces in bytes. Trainers stop at 16 characters.
const maxPiece = 1 << 10
