package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/easyrl/easyrl/internal/filetype"
)

// maxLines is the maximum number of lengths in a file.
const maxLines = 10_000_000

// Kinds of distributions.
const (
	lognormal = "lognormal"
	uniformly = "uniform"
	fixed     = "fixed"
	file      = "file"
)

// Lengths is a distribution of response lengths in tokens, from 1 to 1,048,576.
// The zero value is not a distribution.
type Lengths struct {
	kind string
	a, b float64 // lognormal: mean and sigma; uniform: bounds; fixed: a is the length
	path string  // file: its path
	list []int   // file: its lengths, ascending
}

// parseLengths parses one of
//
//	lognormal:MEAN,SIGMA  mean in tokens, and standard deviation of the logarithm
//	uniform:A,B           A to B tokens, inclusive
//	fixed:N               N tokens
//	file:PATH             the empirical distribution of a file with one length per line
//
// Its conditions on floats are negated ranges, so that NaN is an error too.
func parseLengths(s string) (Lengths, error) {
	kind, rest, _ := strings.Cut(s, ":")
	l := Lengths{kind: kind}
	var err error
	switch kind {
	case lognormal:
		l.a, l.b, err = pair(rest)
		if err == nil && !(l.a >= 1 && l.a <= maxLength && l.b >= 0 && l.b <= 5) {
			err = fmt.Errorf("expected a mean of 1 to %d and a sigma of 0 to 5", maxLength)
		}
	case uniformly:
		l.a, l.b, err = pair(rest)
		if err == nil && !(isLength(l.a) && isLength(l.b) && l.a <= l.b) {
			err = fmt.Errorf("expected whole numbers A and B, 1 to %d, A not more than B", maxLength)
		}
	case fixed:
		l.a, err = strconv.ParseFloat(rest, 64)
		if err != nil || !isLength(l.a) {
			err = fmt.Errorf("expected a whole number, 1 to %d", maxLength)
		}
	case file:
		l.path = rest
		l.list, err = readLengths(rest)
	default:
		err = errors.New("expected lognormal:MEAN,SIGMA, uniform:A,B, fixed:N or file:PATH")
	}
	if err != nil {
		return Lengths{}, fmt.Errorf("lengths %q: %w", s, err)
	}
	return l, nil
}

// pair parses two numbers separated by a comma.
func pair(s string) (a, b float64, err error) {
	first, second, ok := strings.Cut(s, ",")
	if ok {
		a, err = strconv.ParseFloat(first, 64)
		if err == nil {
			b, err = strconv.ParseFloat(second, 64)
		}
	}
	if !ok || err != nil {
		return 0, 0, errors.New("expected two comma-separated numbers")
	}
	return a, b, nil
}

// isLength reports whether x is a whole number from 1 to maxLength.
func isLength(x float64) bool { return x >= 1 && x <= maxLength && x == math.Trunc(x) }

func readLengths(path string) ([]int, error) {
	f, err := filetype.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return scanLengths(f)
}

func scanLengths(r io.Reader) ([]int, error) {
	var list []int
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > maxLength {
			return nil, fmt.Errorf("line %d: %.40q, expected a whole number, 1 to %d", n, text, maxLength)
		}
		if len(list) == maxLines {
			return nil, fmt.Errorf("line %d: expected at most %d lengths", n, maxLines)
		}
		list = append(list, v)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(list) == 0 {
		return nil, errors.New("the file has no lengths, expected one per line")
	}
	slices.Sort(list)
	return list, nil
}

// At returns the quantile of the distribution at u, which is in [0, 1): a length that a share u of
// the responses does not exceed.
func (l Lengths) At(u float64) int {
	switch l.kind {
	case uniformly:
		return int(l.a + math.Floor(u*(l.b-l.a+1)))
	case fixed:
		return int(l.a)
	case file:
		return l.list[int(u*float64(len(l.list)))]
	}
	// The mean of a log-normal distribution is exp(mu + sigma²/2).
	mu := math.Log(l.a) - l.b*l.b/2
	// The quantile of the normal distribution is infinite at 0. Draws of 53 bits stay within 9.
	z := min(max(math.Sqrt2*math.Erfinv(2*u-1), -9), 9)
	return int(math.Round(min(max(math.Exp(mu+l.b*z), 1), maxLength)))
}

// String returns the distribution in the syntax of parseLengths.
func (l Lengths) String() string {
	switch l.kind {
	case lognormal, uniformly:
		return fmt.Sprintf("%s:%v,%v", l.kind, l.a, l.b)
	case fixed:
		return fmt.Sprintf("%s:%v", l.kind, l.a)
	}
	return l.kind + ":" + l.path
}
