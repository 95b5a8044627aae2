package py

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
)

// DecodeJSON decodes one JSON value like Python's json.loads: objects keep the order of their
// keys, and whole numbers are integers.
func (m *Machine) DecodeJSON(data []byte) (Value, error) {
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
	*Machine
	tokens *json.Decoder
}

func (d decoder) value() (Value, error) {
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

func (d decoder) list() (Value, error) {
	var items []Value
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

func (d decoder) dict() (Value, error) {
	dict := NewDict()
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

func decodeNumber(s string) (Value, error) {
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
	return Integer(n), nil
}
