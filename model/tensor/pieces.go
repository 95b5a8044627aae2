package tensor

import "github.com/easyrl/easyrl/npu"

// Piece is a run of rows of a tensor of some Params. It begins where a block of npu.MatrixBlock rows
// does.
type Piece struct {
	Param
	Of  int // index of the tensor
	Row int // of the tensor, with which the piece begins
}

// Cut returns the tensor and row at which rank i of n begins if ranks divide all values about evenly.
// For i = n it returns the end.
func (ps Params) Cut(i, n int) (of, row int) {
	if i == n {
		return len(ps), 0
	}
	total := 0
	for j := range ps {
		total += ps[j].Shape().Values()
	}
	want := int(int64(total) * int64(i) / int64(n))
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
