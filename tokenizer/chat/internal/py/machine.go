package py

// Limits bounds one rendering.
type Limits struct {
	Steps int64 // evaluated nodes, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// Machine computes with values and counts how much of its Limits one rendering has
// used: the interpreter of a template that nobody trusts must end. It serves one
// rendering, on one goroutine.
type Machine struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// NewMachine returns a Machine that has used nothing.
func NewMachine(limits Limits) *Machine { return &Machine{limits: limits} }

// Step uses n steps.
func (m *Machine) Step(n int) {
	m.steps += int64(n)
	if m.steps > m.limits.Steps {
		Raise(KindLimit, "template takes more than %d steps", m.limits.Steps)
	}
}

// Grow uses n bytes. Call it before allocating them.
func (m *Machine) Grow(n int) {
	m.bytes += int64(n)
	if n < 0 || m.bytes > m.limits.Bytes {
		Raise(KindLimit, "template allocates more than %d bytes", m.limits.Bytes)
	}
	m.Step(1 + n/64)
}

// Scan uses the steps for reading n bytes.
func (m *Machine) Scan(n int) { m.Step(n / 64) }

// Enter enters a level of nesting; Leave must follow.
func (m *Machine) Enter() {
	m.depth++
	if m.depth > m.limits.Depth {
		Raise(KindLimit, "template or its data nests deeper than %d levels", m.limits.Depth)
	}
}

// Leave leaves a level of nesting.
func (m *Machine) Leave() { m.depth-- }

// Times raises the limit if n copies of size bytes are too many.
func (m *Machine) Times(size, n int) {
	if size > 0 && n > int(m.limits.Bytes)/size {
		n = int(m.limits.Bytes)/size + 1
	}
	m.Grow(size * n)
}

// NewList returns a list that owns items.
func (m *Machine) NewList(items []Value) *List {
	m.Grow(24 + 16*len(items))
	return &List{Items: items}
}
