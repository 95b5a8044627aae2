// Package openapi describes the server's interface as an OpenAPI document. Schemas of
// requests come from the fields that the server decodes, and schemas of answers from the
// types that it encodes.
package openapi

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/easyrl/easyrl/inference/server/internal/fields"
)

// Schema is a JSON schema, or another object of the document.
type Schema = map[string]any

// builder collects the schemas of types by their names.
type builder struct{ components Schema }

// object returns a schema of an object with no other properties.
func object(properties Schema, required []string) Schema {
	s := Schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func reference(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

func arrayOf(items Schema) Schema { return Schema{"type": "array", "items": items} }

// nullable returns a schema that also allows null.
func nullable(s Schema) Schema {
	kind, plain := s["type"].(string)
	list, listed := s["enum"].([]any)
	switch {
	case len(s) == 0:
		return s
	case listed:
		s = maps.Clone(s)
		s["enum"] = append(slices.Clone(list), nil)
		if plain {
			s["type"] = []any{kind, "null"}
		}
		return s
	case plain:
		s = maps.Clone(s)
		s["type"] = []any{kind, "null"}
		return s
	}
	return Schema{"anyOf": []any{s, Schema{"type": "null"}}}
}

// integer returns the schema of integers in a range.
func integer[T int | int64 | uint64](low int64, high T) Schema {
	return Schema{"type": "integer", "minimum": low, "maximum": high}
}

// of returns the schema of a type as encoding/json encodes it. A struct becomes a component.
func (b *builder) of(t reflect.Type) Schema {
	switch t {
	case reflect.TypeFor[fields.Seed]():
		return integer(math.MinInt64, uint64(math.MaxUint64))
	case reflect.TypeFor[fields.Object]():
		return Schema{"type": "object"}
	case reflect.TypeFor[json.RawMessage]():
		return Schema{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(b.of(t.Elem()))
	case reflect.Struct:
		if _, ok := b.components[t.Name()]; !ok && t.Name() != "" {
			b.components[t.Name()] = Schema{} // a type may contain itself
			b.components[t.Name()] = b.fieldsOf(t)
		}
		if t.Name() == "" {
			return b.fieldsOf(t)
		}
		return reference(t.Name())
	case reflect.Slice:
		return nullable(arrayOf(b.of(t.Elem())))
	case reflect.Map:
		return nullable(Schema{"type": "object", "additionalProperties": b.of(t.Elem())})
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Int32:
		return integer(math.MinInt32, math.MaxInt32)
	case reflect.Int, reflect.Int64:
		return Schema{"type": "integer"}
	}
	return Schema{}
}

// fieldsOf returns the schema of a struct's fields. A field with omitempty is optional and
// never null.
func (b *builder) fieldsOf(t reflect.Type) Schema {
	properties := Schema{}
	var required []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		s, special := b.special(t.Name() + "." + name)
		if !special {
			s = b.of(f.Type)
		}
		if option == "omitempty" {
			if kinds, ok := s["type"].([]any); ok && !special {
				s["type"] = kinds[0]
			} else if any, ok := s["anyOf"].([]any); ok && !special {
				s, _ = any[0].(Schema)
			}
		} else {
			required = append(required, name)
		}
		properties[name] = s
	}
	return object(properties, required)
}

// variant adds a component that is a type without some fields and with others required.
func (b *builder) variant(name string, t reflect.Type, without, required []string, change Schema) Schema {
	s := b.fieldsOf(t)
	properties, _ := s["properties"].(Schema)
	for _, field := range without {
		delete(properties, field)
	}
	maps.Copy(properties, change)
	always, _ := s["required"].([]string)
	always = slices.DeleteFunc(always, func(field string) bool { return slices.Contains(without, field) })
	s["required"] = append(always, required...)
	b.components[name] = s
	return reference(name)
}
