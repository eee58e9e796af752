package agent

import (
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// What a process wrote is waited for, however slow the reader is; what its children write later is not.
func TestAllThatAProcessWroteIsCopied(t *testing.T) {
	for name, childrenKeepThePipe := range map[string]bool{"no children": false, "children that keep the pipe": true} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		const size = 60 << 10 // it fits into a pipe
		if _, err := write.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if !childrenKeepThePipe {
			write.Close()
		}
		var copied atomic.Int64
		held, done := make(chan struct{}), make(chan struct{})
		o := &output{pipe: read}
		go func() {
			o.copy(func(b []byte) { <-held; copied.Add(int64(len(b))) })
			close(done)
		}()
		written := o.written()
		select {
		case <-written:
			t.Errorf("%s: all is copied, and the reader has read nothing", name)
		case <-time.After(50 * time.Millisecond):
		}
		close(held)
		<-written
		if got := copied.Load(); got != size {
			t.Errorf("%s: %d bytes are copied, want %d", name, got, size)
		}
		write.Close()
		<-done
	}
}

// A pipe whose end was read owes nothing.
func TestAPipeAtItsEndOwesNothing(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	write.Close()
	o := &output{pipe: read}
	o.copy(func([]byte) { t.Error("an empty pipe has output") })
	<-o.written()
}
