package parquet

import (
	"errors"
	"fmt"
	"slices"
)

var errLevels = errors.New("columns of one group disagree about which values are present")

// assembler reassembles records from the columns of a row group. Each column has a
// current value; writing a value as JSON advances the columns below it. A definition level
// (def) says how many ancestors of a value are present, and a repetition level (rep) which
// list the value continues (Melnik et al. 2010, "Dremel").
type assembler struct {
	file    *File
	columns []*column // by leaf; nil if not requested
	out     []byte    // JSON of the current field
	spent   int       // number of bytes of out that are charged to the budget
}

// open opens the columns of the leaves below n.
func (a *assembler) open(g *rowGroup, n *node) error {
	for i := n.leaves[0]; i < n.leaves[1]; i++ {
		c, err := a.file.openColumn(g, a.file.leaves[i])
		if c != nil {
			a.columns[i] = c
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", n.name, err)
		}
	}
	return nil
}

// close releases the memory of all columns.
func (a *assembler) close() {
	for _, c := range a.columns {
		if c != nil {
			c.close()
		}
	}
}

// field returns the JSON of a top-level column in the current row, in memory that the caller
// owns.
func (a *assembler) field(n *node) ([]byte, error) {
	for i := n.leaves[0]; i < n.leaves[1]; i++ {
		if c := a.columns[i]; c.done || c.rep != 0 { // a row begins with rep 0
			return nil, errValues
		}
	}
	a.out, a.spent = a.out[:0], 0
	if err := a.node(n); err != nil {
		return nil, err
	}
	if err := a.pay(); err != nil {
		return nil, err
	}
	for i := n.leaves[0]; i < n.leaves[1]; i++ {
		if c := a.columns[i]; !c.done && c.rep != 0 {
			return nil, errLevels
		}
	}
	return slices.Clone(a.out), nil
}

// pay charges the bytes written since the last call to the file's budget.
func (a *assembler) pay() error {
	n := len(a.out) - a.spent
	a.spent = len(a.out)
	return a.file.spend(int64(n))
}

// node writes a column whose parent is present: the value, null, or an array.
func (a *assembler) node(n *node) error {
	switch first := a.columns[n.leaves[0]]; {
	case n.repetition == repeated:
		return a.repeated(n)
	case n.repetition == optional && first.def < n.def:
		return a.absent(n, "null")
	}
	return a.present(n)
}

// present writes a non-null column.
func (a *assembler) present(n *node) error {
	switch {
	case n.leaf >= 0:
		return a.leaf(n)
	case n.form == list:
		return a.repeated(n.children[0])
	case n.form == table:
		return a.table(n.children[0])
	}
	a.out = append(a.out, '{')
	for i, child := range n.children {
		if i > 0 {
			a.out = append(a.out, ',')
		}
		a.out = append(appendString(a.out, validName(child.name)), ':')
		if err := a.node(child); err != nil {
			return err
		}
	}
	a.out = append(a.out, '}')
	return a.pay()
}

// leaf writes the current value of a leaf and advances it.
func (a *assembler) leaf(n *node) error {
	c := a.columns[n.leaf]
	if c.done || c.def != n.def {
		return errLevels
	}
	v, err := c.value()
	if err != nil {
		return err
	}
	if a.out, err = n.render(a.out, v); err != nil {
		return err
	}
	if err := a.pay(); err != nil {
		return err
	}
	return c.advance()
}

// absent writes text (null or an empty container) and advances all leaves below
// n.
func (a *assembler) absent(n *node, text string) error {
	for i := n.leaves[0]; i < n.leaves[1]; i++ {
		c := a.columns[i]
		if c.done || c.def >= n.def {
			return errLevels
		}
		if err := c.advance(); err != nil {
			return err
		}
	}
	a.out = append(a.out, text...)
	return a.pay()
}

// repeated writes the elements of a repeated column as an array.
func (a *assembler) repeated(n *node) error {
	if a.columns[n.leaves[0]].def < n.def {
		return a.absent(n, "[]")
	}
	a.out = append(a.out, '[')
	if err := a.elements(n, a.element); err != nil {
		return err
	}
	a.out = append(a.out, ']')
	return nil
}

// elements writes the elements of a non-empty list, separated by commas. The list continues
// while the next values have its repetition level.
func (a *assembler) elements(n *node, element func(*node) error) error {
	first := a.columns[n.leaves[0]]
	for {
		if err := element(n); err != nil {
			return err
		}
		if first.done || first.rep != n.rep {
			return nil
		}
		for i := n.leaves[0]; i < n.leaves[1]; i++ {
			if c := a.columns[i]; c.done || c.rep != n.rep || c.def < n.def {
				return errLevels
			}
		}
		a.out = append(a.out, ',')
	}
}

// element writes one element of a repeated column.
func (a *assembler) element(n *node) error {
	if n.bare {
		return a.node(n.children[0])
	}
	return a.present(n)
}

// table writes a map as an object; n is its repeated group of a key and a value.
func (a *assembler) table(n *node) error {
	if a.columns[n.leaves[0]].def < n.def {
		return a.absent(n, "{}")
	}
	a.out = append(a.out, '{')
	err := a.elements(n, func(n *node) error {
		start := len(a.out)
		if err := a.leaf(n.children[0]); err != nil {
			return err
		}
		if len(a.out) == start || a.out[start] != '"' {
			return errors.New("map with non-string keys")
		}
		a.out = append(a.out, ':')
		return a.node(n.children[1])
	})
	a.out = append(a.out, '}')
	return err
}

// validName returns a column's name with U+FFFD for bytes that are not UTF-8.
func validName(name string) []byte { return []byte(string([]rune(name))) }
