package law

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func bothLaws(r Range) []Law { return []Law{NewPaper(r), NewFeedback(r)} }

func TestPaperLawIsEquationFour(t *testing.T) {
	// Worked by hand: S = 40 + (50/50)60 + (50/50)60 = 160, I = 1/2;
	// m_a = 50(80-0)/60 = 66.7, m_b = 50(80-40)/60 = 33.3.
	got := NewPaper(BFQRange).Next(5, []Observation{
		{ID: "a", Ideal: 50, Weight: 50, OtherBytes: 60},
		{ID: "b", Ideal: 50, Weight: 50, OtherBytes: 60, JournalBytes: 40},
	})
	for n, want := range []float64{200.0 / 3, 100.0 / 3} {
		if math.Abs(got[n]-want) > 1e-9 {
			t.Errorf("weights %v, want 66.7 and 33.3", got)
		}
	}
	// Unequal ideals and weights in force that are not ideal: S = 30 +
	// (70/80)160 + (30/20)40 = 230; m_a = 80(161)/160, m_b = 20(69-30)/40.
	got = NewPaper(BFQRange).Next(5, []Observation{
		{ID: "a", Ideal: 70, Weight: 80, OtherBytes: 160},
		{ID: "b", Ideal: 30, Weight: 20, OtherBytes: 40, JournalBytes: 30},
	})
	for n, want := range []float64{80.5, 19.5} {
		if math.Abs(got[n]-want) > 1e-9 {
			t.Errorf("weights %v, want 80.5 and 19.5", got)
		}
	}
}

func TestPaperLawClampsToTheWeightFile(t *testing.T) {
	cfq := Range{Min: 10, Max: 1000}
	got := NewPaper(cfq).Next(5, []Observation{
		{ID: "a", Ideal: 500, Weight: 500, OtherBytes: 10},
		{ID: "b", Ideal: 500, Weight: 500, OtherBytes: 10, JournalBytes: 1000},
	})
	if got[0] != 1000 || got[1] != 10 {
		t.Errorf("weights %v, want 1000 and 10", got)
	}
}

// drawSiblings makes 2 to 64 siblings; with idleOften some do nothing.
func drawSiblings(t *rapid.T, r Range) []Observation {
	count := rapid.IntRange(2, 64).Draw(t, "siblings")
	siblings := make([]Observation, count)
	for n := range siblings {
		siblings[n] = Observation{
			ID:           fmt.Sprint("/c", n),
			Ideal:        float64(rapid.Uint64Range(r.Min, r.Max).Draw(t, "ideal")),
			Weight:       float64(rapid.Uint64Range(r.Min, r.Max).Draw(t, "weight")),
			JournalBytes: float64(rapid.Uint64Range(0, 1<<33).Draw(t, "journal")),
			OtherBytes:   float64(rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(0, 1<<33)).Draw(t, "other")),
		}
	}
	return siblings
}

var ranges = []Range{BFQRange, {Min: 10, Max: 1000}, {Min: 1, Max: 10000}}

func TestLawsStayInRangeAndIdleStaysIdeal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(ranges).Draw(t, "range")
		for _, law := range bothLaws(r) {
			for range rapid.IntRange(1, 6).Draw(t, "intervals") {
				siblings := drawSiblings(t, r)
				next := law.Next(5, siblings)
				for n, w := range next {
					if !(w >= float64(r.Min) && w <= float64(r.Max)) {
						t.Fatalf("%s: weight %v of %s is outside %v", law.Name(), w, siblings[n].ID, r)
					}
					if siblings[n].OtherBytes == 0 && w != siblings[n].Ideal {
						t.Fatalf("%s: idle %s has weight %v, ideal %v", law.Name(), siblings[n].ID, w, siblings[n].Ideal)
					}
				}
			}
		}
	})
}

func TestFeedbackKeepsTheSumOfTheIdeals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law := NewFeedback(BFQRange)
		weights := map[string]float64{}
		for range rapid.IntRange(1, 6).Draw(t, "intervals") {
			siblings := drawSiblings(t, Range{Min: 1, Max: 15}) // 64 of them fit below 1000
			var ideals float64
			ids := make([]string, len(siblings))
			for n := range siblings {
				o := &siblings[n]
				ideals += o.Ideal
				ids[n] = o.ID
				if w := weights[o.ID]; w != 0 {
					o.Weight = w
				}
			}
			next := law.Next(5, siblings)
			var sum, whole float64
			for _, w := range next {
				sum += w
			}
			for n, w := range Quantize(next, ids, BFQRange) {
				whole += float64(w)
				weights[ids[n]] = float64(w)
			}
			// The floor of 1 may raise the sum of the least weights; the dead band
			// may leave it off by half a unit.
			if sum < ideals-0.51 || sum > ideals+float64(len(siblings)) {
				t.Fatalf("sum %v of %v, want that of the ideals, %v", sum, next, ideals)
			}
			if math.Abs(whole-sum) > 0.51 {
				t.Fatalf("rounding changed the sum from %v to %v", sum, whole)
			}
		}
	})
}

func TestPaperLawPredictsTheSameTotal(t *testing.T) {
	// Equation 3: with the new weights the siblings would do S in all.
	rapid.Check(t, func(t *rapid.T) {
		wide := Range{Min: 1, Max: MaxWeight}
		siblings := drawSiblings(t, BFQRange)
		for n := range siblings {
			siblings[n].OtherBytes += 1 << 30 // nobody idle
			siblings[n].JournalBytes = math.Mod(siblings[n].JournalBytes, 1<<10)
			siblings[n].Ideal = math.Mod(siblings[n].Ideal, 100) + 100
		}
		var s, predicted float64
		next := NewPaper(wide).Next(5, siblings)
		for n, o := range siblings {
			s += o.JournalBytes + o.Ideal/o.Weight*o.OtherBytes
			predicted += o.JournalBytes + next[n]/o.Weight*o.OtherBytes
			if next[n] <= 1 || next[n] >= MaxWeight {
				t.Skip("clamped")
			}
		}
		if math.Abs(predicted-s) > 1e-6*s {
			t.Fatalf("predicts %v bytes, want %v", predicted, s)
		}
	})
}

func TestLawsDoNotCareAboutTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := bothLaws(BFQRange), bothLaws(BFQRange)
		for range rapid.IntRange(1, 5).Draw(t, "intervals") {
			siblings := drawSiblings(t, BFQRange)
			shuffled := rapid.Permutation(siblings).Draw(t, "order")
			for n := range one {
				byID := map[string]float64{}
				for k, w := range one[n].Next(5, siblings) {
					byID[siblings[k].ID] = w
				}
				for k, w := range other[n].Next(5, shuffled) {
					if want := byID[shuffled[k].ID]; math.Abs(w-want) > 1e-6*want {
						t.Fatalf("%s: %s gets %v in one order and %v in another", one[n].Name(), shuffled[k].ID, want, w)
					}
				}
			}
		}
	})
}

func TestLawsSurviveNumbersThatAreNoMeasurements(t *testing.T) {
	bad := []float64{0, -1, 1, 5e-324, 1e-300, 1e300, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(), 1 << 62, 1000}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) float64 {
			return rapid.OneOf(rapid.SampledFrom(bad), rapid.Float64()).Draw(t, label)
		}
		laws := bothLaws(BFQRange)
		for range rapid.IntRange(1, 4).Draw(t, "intervals") {
			siblings := make([]Observation, rapid.IntRange(0, 8).Draw(t, "siblings"))
			for n := range siblings {
				siblings[n] = Observation{ID: rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "id"),
					Ideal: draw("ideal"), Weight: draw("weight"), JournalBytes: draw("journal"), OtherBytes: draw("other")}
			}
			seconds := draw("seconds")
			for _, law := range laws {
				next := law.Next(seconds, siblings)
				if len(next) != len(siblings) {
					t.Fatalf("%s: %d weights for %d siblings", law.Name(), len(next), len(siblings))
				}
				for _, w := range next {
					if !(w >= 1 && w <= 1000) {
						t.Fatalf("%s: weight %v from %+v", law.Name(), w, siblings)
					}
				}
			}
		}
	})
}

func TestANonsenseIntervalDoesNotSpoilWhatFollows(t *testing.T) {
	law := NewFeedback(BFQRange)
	law.Next(5, []Observation{{ID: "a", Ideal: 50, Weight: math.NaN(), OtherBytes: math.Inf(1)}, {ID: "b", Ideal: 50, Weight: 50, OtherBytes: math.NaN(), JournalBytes: math.Inf(1)}})
	disk := newSimDisk(1, 0.05, reader(500), metadataWriter(500, 4e6))
	out := steer(disk, law, BFQRange, 5, 12)
	if worst := out.worstMean(disk.targets()); worst > 0.02 {
		t.Errorf("mean share is %.3f from the target", worst)
	}
}

func TestUnknownLawIsRefused(t *testing.T) {
	if _, err := NewLaw("pid", BFQRange); err == nil {
		t.Error("a law called pid was made")
	}
	if _, err := NewLaw(PaperLaw, Range{Min: 0, Max: 10}); err == nil {
		t.Error("a range from 0 was taken")
	}
}

func TestQuantizeKeepsSumAndRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Float64Range(1, 999), 1, 64).Draw(t, "weights")
		ids := make([]string, len(weights))
		var sum float64
		for n := range weights {
			ids[n] = fmt.Sprint(n)
			sum += weights[n]
		}
		var whole float64
		for n, w := range Quantize(weights, ids, BFQRange) {
			whole += float64(w)
			if math.Abs(float64(w)-weights[n]) > 1+1e-6 {
				t.Fatalf("%v became %d", weights[n], w)
			}
		}
		if math.Abs(whole-sum) > 0.5+1e-6 {
			t.Fatalf("sum %v became %v", sum, whole)
		}
	})
	if got := Quantize([]float64{69.99999999999, 30.00000000001}, []string{"a", "b"}, BFQRange); !slices.Equal(got, []uint64{70, 30}) {
		t.Errorf("computed 70 and 30 became %v", got)
	}
	if got := Quantize([]float64{math.NaN(), math.Inf(1)}, []string{"a", "b"}, BFQRange); !slices.Equal(got, []uint64{1, 1000}) {
		t.Errorf("NaN and infinity became %v", got)
	}
}

// A counter that breaks for one step leaves nothing behind in a law.
func TestWhatIsNoMeasurementIsForgotten(t *testing.T) {
	for _, bytes := range []float64{math.NaN(), math.Inf(1), 1.8e19, -1} {
		weighted, limited := NewFeedback(BFQRange), NewLimitLaw()
		weights := []float64{700, 300}
		step := func(bytes float64) (limits []float64) {
			observations := []Observation{
				{ID: "a", Ideal: 700, Weight: weights[0], OtherBytes: bytes, BusySeconds: 0.5, RequestSeconds: 2},
				{ID: "b", Ideal: 300, Weight: weights[1], OtherBytes: 6e6, BusySeconds: 0.5, RequestSeconds: 2},
			}
			copy(weights, weighted.Next(0.5, observations))
			return limited.Next(0.5, observations)
		}
		for range 40 {
			step(14e6)
		}
		before, limits := slices.Clone(weights), step(bytes)
		if !slices.Equal(weights, before) || !(limits[0] > 0 || limits[1] > 0) {
			t.Errorf("in a step with %g bytes the weights go from %.0f to %.0f, and the limits are %.0f", bytes, before, weights, limits)
		}
		for range 20 {
			limits = step(14e6)
		}
		if math.Abs(weights[0]-700) > 5 || math.Abs(weights[1]-300) > 5 {
			t.Errorf("10 s after a step with %g bytes the weights are %.0f; want 700 and 300", bytes, weights)
		}
		if greatest := slices.Max(limits); !(greatest > 1e6 && greatest < 100e6) {
			t.Errorf("10 s after a step with %g bytes the limits are %.0f; want one of some 10 MB/s", bytes, limits)
		}
	}
}

func TestScaleMakesSmallWeightsFineEnough(t *testing.T) {
	for _, c := range []struct {
		ideals []uint64
		want   uint64
	}{
		{[]uint64{500, 500}, 1}, {[]uint64{40, 30, 20, 10}, 1}, {[]uint64{50, 50}, 1},
		{[]uint64{5, 5}, 20}, {[]uint64{1, 1, 1}, 67}, {[]uint64{1000, 1000}, 1}, {nil, 1},
		{slices.Repeat([]uint64{1}, 100), 10}, {slices.Repeat([]uint64{10}, 100), 1}, {[]uint64{99, 1}, 1},
	} {
		if got := Scale(c.ideals, BFQRange); got != c.want {
			t.Errorf("Scale(%v) = %d, want %d", c.ideals, got, c.want)
		}
	}
}
