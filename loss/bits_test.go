package loss

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/easyrl/easyrl/internal/splitmix"
)

// bitsOf hashes numbers.
type bitsOf struct{ hash.Hash64 }

func newBits() bitsOf { return bitsOf{fnv.New64a()} }

func (b bitsOf) add(values ...float64) {
	for _, v := range values {
		_, _ = b.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))) // never fails
	}
}

// sensitive returns groups of rewards with a float32 advantage that would be another if the compiler
// fused the deviation's squares into its sum.
func sensitive(t *testing.T, n int) (groups [][]float64) {
	t.Helper()
	for seed := uint64(1); len(groups) < n; seed++ {
		require.Less(t, seed, uint64(2000), "fusing changes no advantage, so they are fused already")
		rewards := make([]float64, 4+splitmix.At(seed, 99)%13)
		for i := range rewards {
			rewards[i] = math.Round(float64(splitmix.At(seed, uint64(i))>>11)/(1<<53)*1e4) / 1e4
		}
		first := func(reward float64) float32 { // advantage if the last response has this reward
			rewards[len(rewards)-1] = reward
			return float32(Advantages(GroupAdvantage, rewards)[0])
		}
		low, high := 0.0, 1.0
		// to two neighbours between which the advantage changes
		for want := first(low); math.Nextafter(low, 1) < high; {
			if middle := low + (high-low)/2; first(middle) == want {
				low = middle
			} else {
				high = middle
			}
		}
		for _, reward := range []float64{low, high} {
			if first(reward) != firstFused(rewards) {
				groups = append(groups, rewards)
				break
			}
		}
	}
	return groups
}

// firstFused returns the first advantage, computed with fused squares.
func firstFused(rewards []float64) float32 {
	_, mean := centre(rewards)
	squares := 0.0
	for _, r := range rewards {
		squares = math.FMA(r-mean, r-mean, squares)
	}
	return float32((rewards[0] - mean) / (math.Sqrt(squares/float64(len(rewards)-1)) + stdFloor))
}

// Advantages have the same bits on every machine.
func TestAdvantageBits(t *testing.T) {
	t.Parallel()
	groups := append(sensitive(t, 50), []float64{0.3523, 0.4753, 0.3034, 0.9026})
	for _, c := range []struct {
		kind string
		want uint64
	}{
		{GroupAdvantage, 0x1ae92dc043ca3222}, {GroupMeanAdvantage, 0xa1fae5bac92ac20a},
		{LeaveOneOutAdvantage, 0xb87da48de87adef}, {RewardAdvantage, 0x814017200538b50a},
		{BatchAdvantage, 0xa303ca198d7c0174}, {BatchBaselineAdvantage, 0x5c9d3467bde4cfbb},
	} {
		sum := newBits()
		for _, advantages := range BatchAdvantages(c.kind, groups) {
			sum.add(advantages...)
		}
		require.Equal(t, c.want, sum.Sum64(), "%s: %#x", c.kind, sum.Sum64())
	}
}

// Losses, derivatives and what Eval measures have the same bits on every machine.
func TestObjectiveBits(t *testing.T) {
	t.Parallel()
	v := Vars{Lengths: []int{1, 40, 300, 171}}
	draws := splitmix.Normal{Seed: 5}
	for _, n := range v.Lengths {
		a := float32(draws.Next())
		for range n {
			policy := -float32(math.Abs(draws.Next()))
			v.Policy = append(v.Policy, policy)
			v.Old = append(v.Old, policy+float32(0.2*float32(draws.Next())))
			v.Reference = append(v.Reference, policy+float32(0.3*float32(draws.Next())))
			v.Recomputed = append(v.Recomputed, policy+float32(0.5*float32(draws.Next())))
			v.Behaviour = append(v.Behaviour, policy+float32(0.5*float32(draws.Next())))
			v.Advantage = append(v.Advantage, a)
			v.Weight = append(v.Weight, SequenceMean.Weight(n))
		}
	}
	want := map[string]uint64{GRPO: 0xf90186edda096581, GSPO: 0x3aa749e30d94f8f4, GSPOToken: 0xe57fef62b427c5da,
		CISPO: 0x10975e20d04878ac, REINFORCE: 0xf0ed6013bc89f9b3}
	for _, kind := range kinds() {
		sum := newBits()
		for _, correction := range []string{NoCorrection, Truncate, Mask} {
			for _, kl := range []string{K2, K3} {
				c := Default()
				c.Kind, c.Correction, c.KL, c.Beta, c.DualClip = kind, correction, kl, 0.04, 3
				o, err := New(c)
				require.NoError(t, err)
				r, err := o.Eval(v)
				require.NoError(t, err)
				for _, g := range r.Grad {
					sum.add(float64(g))
				}
				sum.add(r.Loss.Float64(), r.PG.Float64(), r.KL.Float64(), r.Ratio.Float64(), r.RatioMax,
					float64(r.Clipped), float64(r.Corrected))
			}
		}
		require.Equal(t, want[kind], sum.Sum64(), "%s: %#x", kind, sum.Sum64())
	}
}
