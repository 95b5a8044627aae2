// Package pyjson reads and writes JSON as Python's json module does.
package pyjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/tokenizer/chat/internal/py"
)

// Decode decodes one JSON value like Python's json.loads: objects keep the order of their
// keys, and whole numbers are integers.
func Decode(m *py.Machine, data []byte) (py.Value, error) {
	d := decoder{Machine: m, tokens: json.NewDecoder(bytes.NewReader(data))}
	d.tokens.UseNumber()
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if _, err := d.tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("json: found more than one value, expected one")
	}
	return v, nil
}

// decoder builds values from JSON tokens.
type decoder struct {
	*py.Machine
	tokens *json.Decoder
}

func (d decoder) value() (py.Value, error) {
	token, err := d.tokens.Token()
	if err != nil {
		return nil, err
	}
	d.Enter()
	defer d.Leave()
	d.Step(1)
	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return d.list()
		}
		return d.dict()
	case json.Number:
		return decodeNumber(token.String())
	case string:
		d.Grow(len(token))
		return token, nil
	}
	return token, nil // nil or bool
}

func (d decoder) list() (py.Value, error) {
	var items []py.Value
	for d.tokens.More() {
		item, err := d.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := d.tokens.Token()
	return d.NewList(items), err
}

func (d decoder) dict() (py.Value, error) {
	dict := py.NewDict()
	for d.tokens.More() {
		key, err := d.tokens.Token()
		if err != nil {
			return nil, err
		}
		value, err := d.value()
		if err != nil {
			return nil, err
		}
		d.Set(dict, key, value)
	}
	_, err := d.tokens.Token()
	return dict, err
}

func decodeNumber(s string) (py.Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if errors.Is(err, strconv.ErrRange) {
			err = nil // infinity, as in Python
		}
		return f, err
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, nil
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || len(s) > 4300 {
		return nil, fmt.Errorf("json: integer %.20s… has %d digits, expected at most 4300", s, len(s))
	}
	return py.Integer(n), nil
}
