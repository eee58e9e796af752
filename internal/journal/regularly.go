package journal

import (
	"sync"
	"time"
)

// Regularly calls a function at an interval. stop ends that, and returns when no call
// is in progress; it may be called again.
func Regularly(interval time.Duration, do func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				do()
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-done
	})
}
