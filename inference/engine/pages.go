package engine

import "github.com/easyrl/easyrl/npu"

// pagesFor returns the number of pages for n positions.
func pagesFor(n int) int { return (n + npu.PageSize - 1) / npu.PageSize }

// slot returns the cache slot of a position of a sequence with these pages.
func slot(pages []int32, position int) int32 {
	return pages[position/npu.PageSize]*npu.PageSize + int32(position%npu.PageSize)
}

// pages counts the references to each page of the cache. Groups and sequences hold references. A page
// with several references contains only a prompt's positions and is not written.
type pages struct {
	refs []int32 // number of references, by page
	free []int32 // pages without references; the last one is taken next
}

// newPages returns n free pages. Page 0 is taken first.
func newPages(n int) pages {
	p := pages{refs: make([]int32, n), free: make([]int32, n)}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	return p
}

// take allocates a page with one reference. It reports false if none is free.
func (p *pages) take() (int32, bool) {
	n := len(p.free) - 1
	if n < 0 {
		return 0, false
	}
	page := p.free[n]
	p.free = p.free[:n]
	p.refs[page] = 1
	return page, true
}

// hold adds a reference to an allocated page.
func (p *pages) hold(page int32) { p.refs[page]++ }

// drop releases a reference to each page; pages without references become free.
func (p *pages) drop(held []int32) {
	for _, page := range held {
		p.refs[page]--
		if p.refs[page] == 0 {
			p.free = append(p.free, page)
		}
	}
}
