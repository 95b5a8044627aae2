package py

// Limits bounds one rendering.
type Limits struct {
	Steps int64 // evaluated nodes, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// Budget counts how much of its Limits one rendering has used.
type Budget struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// Step uses n steps.
func (b *Budget) Step(n int) {
	b.steps += int64(n)
	if b.steps > b.limits.Steps {
		Raise(KindLimit, "template takes more than %d steps", b.limits.Steps)
	}
}

// Grow uses n bytes. Call it before allocating them.
func (b *Budget) Grow(n int) {
	b.bytes += int64(n)
	if n < 0 || b.bytes > b.limits.Bytes {
		Raise(KindLimit, "template allocates more than %d bytes", b.limits.Bytes)
	}
	b.Step(1 + n/64)
}

// Scan uses the steps for reading n bytes.
func (b *Budget) Scan(n int) { b.Step(n / 64) }

// Enter enters a level of nesting; Leave must follow.
func (b *Budget) Enter() {
	b.depth++
	if b.depth > b.limits.Depth {
		Raise(KindLimit, "template or its data nests deeper than %d levels", b.limits.Depth)
	}
}

// Leave leaves a level of nesting.
func (b *Budget) Leave() { b.depth-- }

// Times raises the limit if n copies of size bytes are too many.
func (b *Budget) Times(size, n int) {
	if size > 0 && n > int(b.limits.Bytes)/size {
		n = int(b.limits.Bytes)/size + 1
	}
	b.Grow(size * n)
}
