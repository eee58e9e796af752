package disksim

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A busy disk takes the sum of its service times, however late the host's
// requests arrive, as long as they arrive within its slack.
func TestErrorsOfTheHostDoNotAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := anyModel(t)
		m.HostSlackSeconds = 0.001
		s := schedule{model: m}
		begin := time.Hour
		now := begin
		var sum time.Duration
		var head uint64
		for i := range 50 {
			offset := rapid.Uint64Range(0, m.SizeBytes).Draw(t, "offset")
			late := time.Duration(rapid.Int64Range(0, int64(time.Millisecond)).Draw(t, "late"))
			if i == 0 {
				late = 0
			}
			end := s.serve(now+late, Read, offset, 4096)
			var service time.Duration
			service, head = m.Service(head, Read, offset, 4096)
			sum += service
			if end != begin+sum {
				t.Fatalf("request %d ends at %v, want %v", i, end, begin+sum)
			}
			now = end
		}
	})
}

func TestAnIdleDiskStartsWhenTheRequestArrives(t *testing.T) {
	s := schedule{model: Model{SizeBytes: 1 << 30, Parameters: Parameters{FlushSeconds: 0.001}}}
	if end := s.serve(time.Hour, Flush, 0, 0); end != time.Hour+time.Millisecond {
		t.Errorf("ended at %v", end)
	}
	later := time.Hour + time.Minute
	if end := s.serve(later, Flush, 0, 0); end != later+time.Millisecond {
		t.Errorf("ended at %v", end)
	}
	// Requests that arrive together are served one after the other.
	if end := s.serve(later, Flush, 0, 0); end != later+2*time.Millisecond {
		t.Errorf("ended at %v", end)
	}
}

func TestTheArmServesInTheOrderOfTheKernelsQueue(t *testing.T) {
	a := newArm(Model{SizeBytes: 1 << 30, Parameters: Parameters{FlushSeconds: 0.02}})
	first := a.submit(1, Flush, 0, 0)
	fourth := a.submit(4, Flush, 0, 0)
	third := a.submit(3, Flush, 0, 0)
	second := a.submit(2, Flush, 0, 0)
	<-fourth
	for i, earlier := range []<-chan struct{}{first, second, third} {
		select {
		case <-earlier:
		default:
			t.Errorf("request 4 was done before request %d", i+1)
		}
	}
	endless := a.submit(5, Flush, 0, 0)
	waiting := a.submit(6, Flush, 0, 0)
	a.finish()
	<-waiting
	<-endless
	<-a.submit(7, Flush, 0, 0)
	a.stop()
}
