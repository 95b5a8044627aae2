package tensor

import "github.com/easyrl/easyrl/npu"

// Piece is a run of rows of one of a list of Params. It begins at the start of a block of
// npu.MatrixBlock rows. A vector is never cut.
type Piece struct {
	Param     // the piece as a tensor of its own
	Of    int // index of the tensor in the list
	Row   int // first row of the piece in the tensor
}

// Cut returns the tensor and the row at which rank i of n begins if ranks divide all values about
// evenly. For i = n it returns len(ps) and 0.
func (ps Params) Cut(i, n int) (of, row int) {
	if i == n {
		return len(ps), 0
	}
	total := 0
	for j := range ps {
		total += ps[j].Shape().Values()
	}
	want := int(int64(total) * int64(i) / int64(n)) // values from the start of tensor j
	for j := range ps {
		p := &ps[j]
		if size := p.Shape().Values(); want >= size {
			want -= size
			continue
		}
		if p.Cols > 0 {
			row = want / p.Cols / npu.MatrixBlock * npu.MatrixBlock
		}
		return j, row
	}
	return len(ps), 0
}

// Pieces returns the pieces of rank i of n. A rank may have none.
func (ps Params) Pieces(i, n int) (all []Piece) {
	of, row := ps.Cut(i, n)
	last, end := ps.Cut(i+1, n)
	for ; of < last || of == last && row < end; of, row = of+1, 0 {
		p := Piece{Param: ps[of], Of: of, Row: row}
		if of == last {
			p.Rows = end
		}
		p.Rows -= row
		p.Whole.Row += row
		all = append(all, p)
	}
	return all
}
