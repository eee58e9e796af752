package control

import "math"

// mean is a rate with fading memory: the ratio of two sums that fade alike,
// and so without the bias toward zero that a plain moving average starts with,
// and right for intervals of unequal length.
type mean struct{ bytes, seconds float64 }

// add takes in an interval; what was before fades by 1/e in memorySeconds.
func (m *mean) add(bytes, seconds, memorySeconds float64) {
	fade := math.Exp(-seconds / memorySeconds)
	m.bytes = m.bytes*fade + bytes
	m.seconds = m.seconds*fade + seconds
}

// rate is in bytes per second.
func (m *mean) rate() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.bytes / m.seconds
}
