package parquet

import "fmt"

// Physical types, numbered as in Parquet.
const (
	kindBoolean = 0
	kindInt32   = 1
	kindInt64   = 2
	kindInt96   = 3
	kindFloat   = 4
	kindDouble  = 5
	kindBytes   = 6 // byte arrays of any length
	kindFixed   = 7 // byte arrays of a fixed length
)

// Repetitions, numbered as in Parquet.
const (
	required = 0
	optional = 1
	repeated = 2
)

// Fields of the LogicalType union.
const (
	logicalString    = 1
	logicalMap       = 2
	logicalList      = 3
	logicalEnum      = 4
	logicalDecimal   = 5
	logicalDate      = 6
	logicalTime      = 7
	logicalTimestamp = 8
	logicalInteger   = 10
	logicalJSON      = 12
	logicalUUID      = 14
	logicalFloat16   = 15
)

// Values of the older ConvertedType.
const (
	convertedUTF8      = 0
	convertedMap       = 1
	convertedKeyValue  = 2
	convertedList      = 3
	convertedEnum      = 4
	convertedDecimal   = 5
	convertedDate      = 6
	convertedTimeMS    = 7  // TIME_MILLIS
	convertedTimeUS    = 8  // TIME_MICROS
	convertedTimeMilli = 9  // TIMESTAMP_MILLIS
	convertedTimeMicro = 10 // TIMESTAMP_MICROS
	convertedUint8     = 11
	convertedUint64    = 14
	convertedJSON      = 19
)

// maxDepth is the maximum nesting depth of columns.
const maxDepth = 64

// form selects the JSON form of a group.
type form uint8

const (
	object form = iota // an object with a field for each child
	list               // an array; the only child, which is repeated, has the elements
	table              // an object; the only child, which is repeated, has keys and values
)

// node is a column of the schema: a leaf or a group. It does not change once built.
type node struct {
	name       string
	repetition int32
	def, rep   uint8  // definition and repetition levels of a present value
	leaves     [2]int // half-open range of the leaves at or below the node

	// For groups:
	form     form
	children []*node
	bare     bool // repeated group whose only child is the list element

	// For leaves:
	leaf   int // index among the leaves; -1 for a group
	kind   int32
	size   int // bytes of a value; 0 for booleans and kindBytes
	render renderer
}

// schemaOf builds the tree of a footer's elements.
func schemaOf(elements []element) (root *node, leaves []*node, err error) {
	if len(elements) == 0 {
		return nil, nil, fmt.Errorf("no schema")
	}
	b := schemaBuilder{elements: elements}
	elements[0].repetition = required // unspecified for the root
	root, err = b.node(nil, 0)
	if err == nil && b.next != len(elements) {
		err = fmt.Errorf("schema of %d elements, but the root has %d", len(elements), b.next)
	}
	if err == nil && root.leaf >= 0 {
		err = fmt.Errorf("schema without columns")
	}
	return root, b.leaves, err
}

// schemaBuilder builds a tree of nodes from elements in depth-first order.
type schemaBuilder struct {
	elements []element
	next     int     // index of the next element
	leaves   []*node // leaves so far
}

// node builds the node of the next element and those below it.
func (b *schemaBuilder) node(parent *node, depth int) (*node, error) {
	if b.next >= len(b.elements) {
		return nil, fmt.Errorf("schema: a group has fewer children than it claims")
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("schema: columns nested more than %d deep", maxDepth)
	}
	e := &b.elements[b.next]
	b.next++
	n := &node{name: e.name, repetition: e.repetition, leaf: -1, kind: e.kind}
	if parent != nil {
		n.def, n.rep = parent.def, parent.rep
	}
	switch e.repetition {
	case required:
	case optional:
		n.def++
	case repeated:
		n.def++
		n.rep++
	default:
		return nil, fmt.Errorf("column %q: repetition %d, expected 0 to 2", e.name, e.repetition)
	}
	n.leaves[0] = len(b.leaves)
	var err error
	if e.kind >= 0 {
		err = b.leaf(n, e)
	} else {
		err = b.group(n, e, depth)
	}
	n.leaves[1] = len(b.leaves)
	return n, err
}

func (b *schemaBuilder) leaf(n *node, e *element) error {
	if e.children > 0 {
		return fmt.Errorf("column %q: has a type and children, expected one", e.name)
	}
	if e.kind > kindFixed {
		return fmt.Errorf("column %q: type %d, expected 0 to %d", e.name, e.kind, kindFixed)
	}
	switch e.kind {
	case kindInt32, kindFloat:
		n.size = 4
	case kindInt64, kindDouble:
		n.size = 8
	case kindInt96:
		n.size = 12
	case kindFixed:
		if e.length < 1 || e.length > 1<<20 {
			return fmt.Errorf("column %q: values of %d bytes, expected 1 to %d", e.name, e.length, 1<<20)
		}
		n.size = int(e.length)
	}
	n.leaf = len(b.leaves)
	n.render = newRenderer(e)
	b.leaves = append(b.leaves, n)
	return nil
}

func (b *schemaBuilder) group(n *node, e *element, depth int) error {
	if e.children < 0 || int(e.children) > len(b.elements)-b.next {
		return fmt.Errorf("column %q: %d children, but %d elements are left", e.name, e.children,
			len(b.elements)-b.next)
	}
	if e.children == 0 && depth > 0 {
		return fmt.Errorf("column %q: neither a type nor children", e.name)
	}
	for range e.children {
		child, err := b.node(n, depth+1)
		if err != nil {
			return err
		}
		n.children = append(n.children, child)
	}
	if len(n.children) == 1 && n.children[0].repetition == repeated && n.repetition != repeated {
		n.setForm(e)
	}
	return nil
}

// setForm recognizes lists and maps by the rules of Parquet's LogicalTypes.md, including
// those for older writers. A map whose keys are not text becomes a list of its pairs.
func (n *node) setForm(e *element) {
	child := n.children[0]
	switch {
	case e.logical == logicalList || e.logical == 0 && e.converted == convertedList:
		n.form = list
		child.bare = len(child.children) == 1 && child.children[0].repetition != repeated &&
			child.name != "array" && child.name != e.name+"_tuple"
	case e.logical == logicalMap || e.logical == 0 && (e.converted == convertedMap || e.converted == convertedKeyValue):
		if len(child.children) == 2 && child.children[0].repetition == required && child.children[0].kind == kindBytes {
			n.form = table
		} else {
			n.form = list
		}
	}
}
