package disksim

import (
	"container/heap"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// arm is the arm of the disk: it serves one request at a time, in the order in
// which the kernel queued them, and completes each at its computed time.
//
// It has its own thread that sleeps by clock_nanosleep, because an idle Go
// runtime's timers have an accuracy of only about a millisecond.
type arm struct {
	mu       sync.Mutex
	arrived  sync.Cond
	pending  requestHeap
	schedule schedule
	instant  bool
	stopped  bool
}

// request waits for its turn.
type request struct {
	// order is the kernel's sequence number of the FUSE request. Goroutines
	// read requests in order, but may reach the arm out of order, which would
	// cost unwanted seeks.
	order          uint64
	arrival        time.Duration
	op             Op
	offset, length uint64
	done           chan struct{}
}

// spin is a sleep too short for a system call: replies may be early by that
// time, while the virtual clock stays exact.
const spin = 30 * time.Microsecond

func newArm(model Model) *arm {
	a := &arm{schedule: schedule{model: model}}
	a.arrived.L = &a.mu
	go a.run()
	return a
}

// submit passes on a request; the channel closes when it is done.
func (a *arm) submit(order uint64, op Op, offset, length uint64) <-chan struct{} {
	r := &request{order: order, arrival: monotonic(), op: op, offset: offset, length: length, done: make(chan struct{})}
	a.mu.Lock()
	if a.instant {
		a.mu.Unlock()
		close(r.done)
		return r.done
	}
	heap.Push(&a.pending, r)
	a.mu.Unlock()
	a.arrived.Signal()
	return r.done
}

// finish serves everything at once from now on, for the final cleanup.
func (a *arm) finish() {
	a.mu.Lock()
	a.instant = true
	for _, r := range a.pending {
		close(r.done)
	}
	a.pending = nil
	a.mu.Unlock()
}

// stop ends the thread of the arm; finish must have been called.
func (a *arm) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.arrived.Signal()
}

func (a *arm) run() {
	runtime.LockOSThread()
	// Without it the kernel may wake this thread 50 us late.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		for len(a.pending) == 0 && !a.stopped {
			a.arrived.Wait()
		}
		if a.stopped {
			return
		}
		r := heap.Pop(&a.pending).(*request)
		done := a.schedule.serve(r.arrival, r.op, r.offset, r.length)
		a.mu.Unlock()
		sleepUntil(done)
		close(r.done)
		a.mu.Lock()
	}
}

func monotonic() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

func sleepUntil(moment time.Duration) {
	if moment-monotonic() < spin {
		return
	}
	until := unix.NsecToTimespec(int64(moment))
	for unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) == unix.EINTR {
	}
}

// requestHeap has the request on top that the kernel queued first.
type requestHeap []*request

func (h requestHeap) Len() int           { return len(h) }
func (h requestHeap) Less(i, j int) bool { return h[i].order < h[j].order }
func (h requestHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *requestHeap) Push(r any)        { *h = append(*h, r.(*request)) }
func (h *requestHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return r
}
