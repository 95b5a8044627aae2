package reference

import (
	"math"

	"github.com/easyrl/easyrl/npu"
)

// mask returns the dense mask of a forest: mask[i][j] reports whether row i attends
// to row j. It follows the definitions of npu.Segment and npu.Heads row by row.
func mask(segments []npu.Segment, rows, window int) [][]bool {
	owner, position := make([]int, rows), make([]int, rows)
	ends := make([]int, len(segments)) // position after each segment's last row
	for s, seg := range segments {
		if seg.Parent >= 0 {
			ends[s] = ends[seg.Parent]
		}
		for i := range int(seg.Len) {
			owner[int(seg.Start)+i], position[int(seg.Start)+i] = s, ends[s]
			ends[s]++
		}
	}
	m := make([][]bool, rows)
	for i := range m {
		m[i] = make([]bool, rows)
		above := map[int]bool{}
		for s := int(segments[owner[i]].Parent); s >= 0; s = int(segments[s].Parent) {
			above[s] = true
		}
		for j := range m[i] {
			m[i][j] = (above[owner[j]] || owner[i] == owner[j] && j <= i) &&
				(window == 0 || position[i]-position[j] < window)
		}
	}
	return m
}

// Attention computes softmax(q kᵀ/sqrt(Dim) + mask) v with dense matrices. lse [rows, h.Q] is the logarithm of
// each row's sum of exponentials of scores.
func Attention[F Float](q, k, v []F, segments []npu.Segment, h npu.Heads) (out, lse []F) {
	rows := len(q) / (h.Q * h.Dim)
	out, lse = make([]F, len(q)), make([]F, rows*h.Q)
	see := mask(segments, rows, h.Window)
	for i := range rows {
		for head := range h.Q {
			p, m, l := Softmax(q, k, see[i], i, head, h)
			lse[i*h.Q+head] = m + F(math.Log(float64(l)))
			for j := range rows {
				for e := range h.Dim {
					if see[i][j] {
						out[(i*h.Q+head)*h.Dim+e] += p[j] / l * v[(j*h.KV+head/(h.Q/h.KV))*h.Dim+e]
					}
				}
			}
		}
	}
	return out, lse
}

// Softmax computes row i of one head: p is exp(score - m) of each key that see allows and 0 of the others,
// m the maximum score and l the sum of p.
func Softmax[F Float](q, k []F, see []bool, i, head int, h npu.Heads) (p []F, m, l F) {
	p = make([]F, len(see))
	m = F(math.Inf(-1))
	for j := range see {
		for e := range h.Dim {
			p[j] += q[(i*h.Q+head)*h.Dim+e] * k[(j*h.KV+head/(h.Q/h.KV))*h.Dim+e]
		}
		p[j] /= F(math.Sqrt(float64(h.Dim)))
		if see[j] {
			m = max(m, p[j])
		}
	}
	for j := range see {
		if !see[j] {
			p[j] = 0
			continue
		}
		p[j] = F(math.Exp(float64(p[j] - m)))
		l += p[j]
	}
	return p, m, l
}

// AttentionBackward computes the derivatives of Σ dOut·out with respect to q, k and v, term by term.
func AttentionBackward[F Float](dOut, out, q, k, v []F, segments []npu.Segment, h npu.Heads) (dq, dk, dv []F) {
	rows := len(q) / (h.Q * h.Dim)
	dq, dk, dv = make([]F, len(q)), make([]F, len(k)), make([]F, len(v))
	see := mask(segments, rows, h.Window)
	root := F(math.Sqrt(float64(h.Dim)))
	for i := range rows {
		for head := range h.Q {
			p, _, l := Softmax(q, k, see[i], i, head, h)
			a := (i*h.Q + head) * h.Dim
			var dot F
			for e := range h.Dim {
				dot += dOut[a+e] * out[a+e]
			}
			for j := range rows {
				if !see[i][j] {
					continue
				}
				b := (j*h.KV + head/(h.Q/h.KV)) * h.Dim
				var dp F
				for e := range h.Dim {
					dp += dOut[a+e] * v[b+e]
				}
				ds := p[j] / l * (dp - dot) / root
				for e := range h.Dim {
					dq[a+e] += ds * k[b+e]
					dk[b+e] += ds * q[a+e]
					dv[b+e] += p[j] / l * dOut[a+e]
				}
			}
		}
	}
	return dq, dk, dv
}
