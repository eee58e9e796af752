package law

// Paper is the law of paper 1, equation 4, with the misprints corrected:
//
//	m_n = m'_n (I_n S - J_n) / C'_n
//	S   = sum_k (J_k + (i_k / m'_k) C'_k)
//	I_n = i_n / sum_k i_k
//
// and m_n = i_n where C'_n = 0, clamped to the range of the weight file. It corrects
// the whole error of one interval at once, so it follows noise as well as load.
// It is kept because it is the paper's, and for comparison with [Feedback].
type Paper struct{ weights Range }

// NewPaper returns the law for weight files of that range.
func NewPaper(r Range) *Paper { return &Paper{weights: r} }

// Name is "paper".
func (p *Paper) Name() string { return PaperLaw }

// Next implements Law; this law does not use seconds.
func (p *Paper) Next(_ float64, siblings []Observation) []float64 {
	var total, ideals float64 // S, and the sum of i
	for _, o := range siblings {
		if o.Ideal > 0 && o.Ideal <= MaxWeight {
			ideals += o.Ideal
		}
		total += o.Journal()
		if !o.idle() {
			total += o.Ideal / o.Weight * o.OtherBytes
		}
	}
	next := make([]float64, len(siblings))
	for n, o := range siblings {
		weight := o.Ideal
		if !o.idle() {
			weight = o.Weight * (o.Ideal/ideals*total - o.Journal()) / o.OtherBytes
		}
		next[n] = p.weights.Clamp(weight)
	}
	return next
}
