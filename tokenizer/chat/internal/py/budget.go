package py

// Limits are what one rendering may use.
type Limits struct {
	Steps int64 // evaluated nodes, loop rounds, and one for every 64 bytes handled
	Bytes int64 // bytes of all strings and lists made, whether still in use or not
	Depth int   // nesting of expressions, blocks, macros and data
}

// Budget counts what one rendering uses of its Limits.
type Budget struct {
	limits Limits
	steps  int64
	bytes  int64
	depth  int
}

// Step takes n steps from the budget.
func (b *Budget) Step(n int) {
	b.steps += int64(n)
	if b.steps > b.limits.Steps {
		Raise(KindLimit, "template takes more than %d steps", b.limits.Steps)
	}
}

// Grow takes n bytes from the budget, before they are allocated.
func (b *Budget) Grow(n int) {
	b.bytes += int64(n)
	if n < 0 || b.bytes > b.limits.Bytes {
		Raise(KindLimit, "template allocates more than %d bytes", b.limits.Bytes)
	}
	b.Step(1 + n/64)
}

// Scan takes the steps for looking at n bytes.
func (b *Budget) Scan(n int) { b.Step(n / 64) }

// Enter goes a level deeper; Leave must follow.
func (b *Budget) Enter() {
	b.depth++
	if b.depth > b.limits.Depth {
		Raise(KindLimit, "template or its data nests deeper than %d levels", b.limits.Depth)
	}
}

// Leave comes back from the level that Enter went to.
func (b *Budget) Leave() { b.depth-- }

// Times raises the limit if n copies of size bytes are too many.
func (b *Budget) Times(size, n int) {
	if size > 0 && n > int(b.limits.Bytes)/size {
		n = int(b.limits.Bytes)/size + 1
	}
	b.Grow(size * n)
}
