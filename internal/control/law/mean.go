package law

import "math"

// Mean is an exponentially weighted rate: the ratio of two sums that decay alike.
// So it has no bias toward zero at the start, unlike a plain moving average, and it
// is right for intervals of unequal length.
type Mean struct{ bytes, seconds float64 }

// Add enters an interval; the sums of before decay by 1/e in memorySeconds.
func (m *Mean) Add(bytes, seconds, memorySeconds float64) {
	fade := math.Exp(-seconds / memorySeconds)
	m.bytes = m.bytes*fade + bytes
	m.seconds = m.seconds*fade + seconds
}

// Rate is in bytes per second.
func (m *Mean) Rate() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.bytes / m.seconds
}

// FromNothing is the rate if nothing happened before the first interval.
func (m *Mean) FromNothing(memorySeconds float64) float64 {
	return m.bytes / math.Max(m.seconds, memorySeconds)
}
