package test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needsKprobes skips a test that holds threads up, or makes functions fail, if the kernel has no
// kprobes: one with KASAN and lockdep (6.1+debug) is built without.
func needsKprobes(t *testing.T) {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), " T register_kprobe\n") {
		t.Skip("this kernel has no kprobes (CONFIG_KPROBES)")
	}
}

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
	over := false
	if !await(func() bool {
		select {
		case <-ended:
			over = true
		default:
		}
		return over || hits(t) > 0
	}) || over {
		t.Fatalf("the thread does not call %s", function)
	}
	return release
}

// hits is how often the chosen function was called.
func hits(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(faultParameters + "hits")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// heldBefore holds the thread with that number up before it calls a function of the kernel. When
// it is released, it calls the function.
func heldBefore(t *testing.T, thread int, function string) (release func()) {
	t.Helper()
	release = func() {
		setParameters(t, faultParameters+"function", "\n", faultParameters+"wait", "0", faultParameters+"before", "0", faultParameters+"task", "0")
	}
	t.Cleanup(release)
	setParameters(t, faultParameters+"skip", "0", faultParameters+"wait", "1", faultParameters+"before", "1", faultParameters+"task", fmt.Sprint(thread), faultParameters+"function", function)
	return release
}

// busyBefore keeps the first thread that calls a function of the kernel busy for a time before
// that, if only is its number.
func busyBefore(t *testing.T, only int, function string, most time.Duration) {
	t.Helper()
	t.Cleanup(func() {
		setParameters(t, faultParameters+"function", "\n", faultParameters+"busy", "0", faultParameters+"task", "0")
	})
	setParameters(t, faultParameters+"skip", "0", faultParameters+"busy", fmt.Sprint(most.Milliseconds()), faultParameters+"task", fmt.Sprint(only), faultParameters+"function", function)
}

// thread is a function's own thread, on one processor.
type thread struct {
	number int
	ended  chan error
}

func onProcessor(t *testing.T, processor int, call func() error) thread {
	t.Helper()
	th := thread{ended: make(chan error, 1)}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the function
		th.number = unix.Gettid()
		var only unix.CPUSet
		only.Set(processor)
		err := unix.SchedSetaffinity(0, &only)
		started <- err
		if err == nil {
			th.ended <- call()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return th
}

// isIn says whether the kernel's function is one that the thread waits in.
func isIn(t *testing.T, number int, function string) bool {
	t.Helper()
	stack, err := os.ReadFile(fmt.Sprintf("/proc/%d/stack", number))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(stack), " "+function+"+")
}

// kernelThread is the number of a thread of the kernel.
func kernelThread(t *testing.T, name string) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range names {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
			number, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("the kernel has no thread %s", name)
	return 0
}
