package disksim

import "time"

// schedule is the disk's virtual clock: it computes the end of each request
// from its arrival. Times are durations since any fixed time. Errors do not add
// up, because the next request starts at the computed end of the one before,
// whenever its reply was sent: a saturated disk takes exactly the sum of its
// service times.
type schedule struct {
	model     Model
	head      uint64
	busyUntil time.Duration
}

// serve serves the next request and returns its end, which may be before the
// arrival by at most the host's slack.
func (s *schedule) serve(arrival time.Duration, op Op, offset, length uint64) time.Duration {
	start := max(arrival, s.busyUntil)
	if arrival-s.busyUntil <= duration(s.model.HostSlackSeconds) {
		start = s.busyUntil
	}
	service, head := s.model.Service(s.head, op, offset, length)
	s.head = head
	s.busyUntil = start + service
	return s.busyUntil
}
