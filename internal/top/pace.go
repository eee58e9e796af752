package top

import (
	"context"
	"sync"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// Paced returns the samples of a recording at the speed at which they were
// taken, multiplied by a factor.
type Paced struct {
	source account.Source
	speed  float64
	first  bool

	mutex sync.Mutex
	// running is closed while not paused.
	running chan struct{}
}

var _ account.Source = (*Paced)(nil)

// NewPaced paces a source. Speed 2 is twice as fast as recorded; it must be
// greater than 0.
func NewPaced(source account.Source, speed float64) *Paced {
	running := make(chan struct{})
	close(running)
	return &Paced{source: source, speed: speed, first: true, running: running}
}

// Pause stops Next, or lets it continue.
func (p *Paced) Pause(paused bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	select {
	case <-p.running:
		if paused {
			p.running = make(chan struct{})
		}
	default:
		if !paused {
			close(p.running)
		}
	}
}

// Next returns the first sample at once and each later one when its interval
// has passed.
func (p *Paced) Next(ctx context.Context) (account.Sample, error) {
	sample, err := p.source.Next(ctx)
	if err != nil {
		return sample, err
	}
	if !p.first {
		timer := time.NewTimer(time.Duration(sample.IntervalSeconds / p.speed * float64(time.Second)))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return account.Sample{}, ctx.Err()
		}
	}
	p.first = false
	p.mutex.Lock()
	running := p.running
	p.mutex.Unlock()
	select {
	case <-running:
		return sample, nil
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	}
}

// Close closes the recording.
func (p *Paced) Close() error { return p.source.Close() }
