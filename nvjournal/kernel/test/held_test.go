package test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// heldUp calls a function in a thread of its own, until that has called a function of the kernel,
// after a number of normal calls. That one does nothing, and returns 0 when the thread is released.
func heldUp(t *testing.T, function string, normal int, call func()) (release func()) {
	t.Helper()
	release = func() {
		setParameters(t, faultParameters+"function", "\n", faultParameters+"wait", "0", faultParameters+"task", "0", faultParameters+"skip", "0")
	}
	t.Cleanup(release)
	thread, begin := make(chan int), make(chan bool)
	ended := make(chan bool)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		<-begin
		call()
		close(ended)
	}()
	setParameters(t, faultParameters+"value", "0", faultParameters+"skip", fmt.Sprint(normal), faultParameters+"wait", "1", faultParameters+"task", fmt.Sprint(<-thread), faultParameters+"function", function)
	begin <- true
	hits := func() string {
		text, err := os.ReadFile(faultParameters + "hits")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	over := false
	if !await(func() bool {
		select {
		case <-ended:
			over = true
		default:
		}
		return over || hits() != "0"
	}) || over {
		t.Fatalf("the thread does not call %s", function)
	}
	return release
}
