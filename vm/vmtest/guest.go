package vmtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/kernels"
	"github.com/daybook-project/daybook/vm/rootfs"
)

// Variables of the environment.
const (
	kernelsVariable = "DAYBOOK_VM_KERNELS" // restricts the kernels: names separated by commas
	longVariable    = "DAYBOOK_VM_LONG"    // 1: long tests too
	insideVariable  = "DAYBOOK_VM_INSIDE"  // 1: this process is in the guest
)

func init() { vm.InitIfAsked() }

// Inside reports whether this test binary runs in a guest.
func Inside() bool { return os.Getenv(insideVariable) == "1" }

// IsLong reports whether tests are to take long: DAYBOOK_VM_LONG=1.
func IsLong() bool { return os.Getenv(longVariable) == "1" }

// Long skips a long test, unless DAYBOOK_VM_LONG=1.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skipf("long test: make vm-test or %s=1 runs it", longVariable)
	}
}

// Kernels returns the names of the kernels to test on, the oldest first.
func Kernels(t testing.TB) []string {
	t.Helper()
	chosen := os.Getenv(kernelsVariable)
	if chosen == "" {
		return kernels.Names()
	}
	names := strings.Split(chosen, ",")
	for _, name := range names {
		if _, err := kernels.Find(name); err != nil {
			t.Fatalf("%s: %v", kernelsVariable, err)
		}
	}
	return names
}

// EachKernel runs a test on the host once for each kernel, as a subtest named
// kernel-NAME. It is for tests that control guests from the host, with [Boot].
func EachKernel(t *testing.T, test func(t *testing.T, kernel string)) {
	t.Helper()
	onEach(t, Kernels(t), test)
}

func onEach(t *testing.T, names []string, test func(t *testing.T, kernel string)) {
	t.Helper()
	for _, kernel := range names {
		t.Run("kernel-"+kernel, func(t *testing.T) { test(t, kernel) })
	}
}

// OneKernel returns one of [Kernels], chosen by the name of the test: always the
// same kernel for one test, and every kernel for some test. With
// DAYBOOK_VM_LONG=1 it returns all.
func OneKernel(t testing.TB) []string {
	t.Helper()
	all := Kernels(t)
	if IsLong() {
		return all
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	at := hash.Sum32() % uint32(len(all))
	return all[at : at+1]
}

// Need skips the test if guests with this kernel cannot boot here.
func Need(t testing.TB, kernel string) {
	t.Helper()
	if err := vm.CheckHost(kernel); err != nil {
		needs.That(t, false, err.Error())
	}
	store, err := kernels.DefaultStore()
	if err != nil {
		t.Fatal(err)
	}
	pin, err := kernels.Find(kernel)
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Cached(kernel, pin.GuestParts()...)
	switch {
	case err == nil:
	case !kernels.IsMissing(err):
		t.Fatal(err)
	case os.Getenv("DAYBOOK_REQUIRE_ALL") == "1":
		store.Log = t.Logf
		if _, err := store.Get(t.Context(), kernel, pin.GuestParts()...); err != nil {
			t.Fatalf("required here, but missing: %v", err)
		}
	default:
		needs.That(t, false, err.Error())
	}
}

// NeedRoot skips the test if the root file system with systemd, with or without
// container engines, is missing and cannot be built here.
func NeedRoot(t testing.TB, engines bool) {
	t.Helper()
	store, err := kernels.DefaultStore()
	if err != nil {
		t.Fatal(err)
	}
	images := rootfs.Store{Dir: store.Dir, Engines: engines, Log: t.Logf}
	if os.Getenv("DAYBOOK_REQUIRE_ALL") == "1" {
		if _, err := images.Get(t.Context()); err != nil {
			t.Fatalf("required here, but missing: %v", err)
		}
		return
	}
	_, err = images.Cached()
	needs.That(t, err == nil, fmt.Sprint(err))
}

// Boot boots a guest for one test, which ends with the test. The test fails if the
// kernel reports a fault, in any boot of the guest.
func Boot(t testing.TB, config vm.Config) *vm.Machine {
	t.Helper()
	m := BootWithKernelProblems(t, config)
	t.Cleanup(func() {
		if problems := m.KernelProblems(); len(problems) > 0 {
			t.Error(describe(problems, m.Console()))
		}
	})
	return m
}

// BootWithKernelProblems is [Boot] for a test that causes faults of the kernel.
func BootWithKernelProblems(t testing.TB, config vm.Config) *vm.Machine {
	t.Helper()
	Need(t, config.Kernel)
	m, err := vm.Boot(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// describe is the message on faults of the kernel.
func describe(problems []string, console string) string {
	text := "the guest's kernel reported faults:\n" + strings.Join(problems, "\n")
	if line := vm.EmulatorFault(console); line != "" {
		text += "\nno processor has these flags, so the emulator broke the guest, not the kernel:\n" + line
	}
	return text + "\nthe console:\n" + console
}

// InGuest runs a test in a guest, once on each kernel, as a subtest named
// kernel-NAME.
func InGuest(t *testing.T, config Config, test func(t *testing.T)) {
	t.Helper()
	names := Kernels(t)
	if config.OneKernel {
		names = OneKernel(t)
	}
	inGuests(t, names, config, test)
}

// OtherArchitectures runs a test in a guest as [InGuest] does, but on the kernels for other
// architectures than amd64. These guests are emulated, also where KVM works.
func OtherArchitectures(t *testing.T, config Config, test func(t *testing.T)) {
	t.Helper()
	names := kernels.Foreign()
	if os.Getenv(kernelsVariable) != "" {
		chosen := Kernels(t)
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(chosen, name) })
	}
	if len(names) == 0 {
		t.Skipf("%s names no kernel for another architecture", kernelsVariable)
	}
	inGuests(t, names, config, test)
}

func inGuests(t *testing.T, names []string, config Config, test func(t *testing.T)) {
	t.Helper()
	onEach(t, names, func(t *testing.T, kernel string) {
		t.Helper()
		if Inside() {
			test(t)
			return
		}
		Need(t, kernel)
		if (config.Systemd || len(config.Pmem) > 0) && slices.Contains(kernels.Foreign(), kernel) {
			t.Skip("guests of another architecture have neither systemd nor persistent memory")
		}
		if config.Systemd {
			NeedRoot(t, config.Engines)
		}
		onHost(t, kernel, config)
	})
}

// Systemd runs a test in a guest with Debian and systemd, once on each kernel, as
// [InGuest] does; tests of a package with the same Config share a guest. The test
// starts when systemd has started all units. It also fails if a unit failed at
// boot, or if the systemd journal has errors (priority err and above) that are
// not known to be harmless.
func Systemd(t *testing.T, config Config, test func(t *testing.T)) {
	t.Helper()
	config.Systemd = true
	InGuest(t, config, test)
}

// onHost runs this subtest in the guest.
func onHost(t *testing.T, kernel string, config Config) {
	t.Helper()
	guest, err := config.guest(kernel)
	if err != nil {
		t.Fatal(err)
	}
	ctx, timeout := bounded(t)
	m, release, err := guests.take(config.key(kernel), config.Fresh, func() (*vm.Machine, error) {
		if guest.Init, err = initFor(t, kernel); err != nil {
			return nil, err
		}
		return vm.Boot(ctx, guest)
	})
	if err != nil {
		t.Fatal(err)
	}
	good := false
	defer func() { release(good) }()

	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(ctx, "mkdir", "-p", dir); err != nil {
		t.Fatal(err)
	}
	out := &report{test: t.Name(), to: t.Output()}
	err = m.Do(ctx, vm.Command{
		Args: append([]string{vm.Self}, testFlags(t.Name(), timeout)...),
		Env:  guestEnvironment(kernel), Dir: dir,
		Stdout: out, Stderr: out,
	})
	var exit *vm.ExitError
	if err != nil && !errors.As(err, &exit) {
		// Output may still arrive, and must not be logged to a test that has ended.
		m.Kill()
	}
	result := out.end()
	if config.Systemd && m.Err() == nil && !config.AllowKernelProblems {
		checkJournal(ctx, t, m)
	}
	// Those since the boot: a guest that has reported one gets no other test.
	problems := m.KernelProblems()
	if len(problems) > 0 && !config.AllowKernelProblems {
		t.Error(describe(problems, m.Console()))
	}
	switch {
	case err != nil && !errors.As(err, &exit):
		t.Fatalf("the guest: %v\nthe console:\n%s", err, m.Console())
	case result == "SKIP" && err == nil:
		good = len(problems) == 0
		t.Skip("skipped in the guest")
	case err != nil:
		t.Fatalf("failed in the guest (%s): %v", m.Kernel(), err)
	case result != "PASS":
		t.Fatalf("the guest did not run %s: does the code before InGuest return in the guest?", t.Name())
	}
	good = !t.Failed() && len(problems) == 0
}

// checkJournal fails the test for new errors in the systemd journal.
func checkJournal(ctx context.Context, t *testing.T, m *vm.Machine) {
	t.Helper()
	found, err := m.JournalErrors(ctx)
	if err != nil {
		t.Error(err)
	}
	if len(found) > 0 {
		t.Errorf("the systemd journal has errors:\n%s", strings.Join(found, "\n"))
	}
}

// bounded returns the test's context, which ends before the test binary does,
// and the part of that time that the guest may use.
func bounded(t *testing.T) (context.Context, time.Duration) {
	const forCleaningUp = 5 * time.Second
	deadline, bounded := t.Deadline()
	if !bounded {
		return t.Context(), 0
	}
	ctx, cancel := context.WithDeadlineCause(t.Context(), deadline.Add(-forCleaningUp), errors.New("the -timeout of go test has expired"))
	t.Cleanup(cancel)
	return ctx, time.Until(deadline) - 2*forCleaningUp
}

// testFlags returns flags that run one subtest with the flags of this process.
func testFlags(name string, timeout time.Duration) []string {
	elements := strings.Split(name, "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	flags := []string{"-test.run=" + strings.Join(elements, "/"), "-test.v=test2json", "-test.count=1"}
	if timeout > 0 {
		flags = append(flags, "-test.timeout="+timeout.String())
	}
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.short" || !strings.HasPrefix(f.Name, "test.") {
			flags = append(flags, "-"+f.Name+"="+f.Value.String())
		}
	})
	return flags
}

// guestEnvironment returns the variables that control tests. It reads each one by
// name, because go test caches a result while the variables that were read are
// unchanged.
func guestEnvironment(kernel string) []string {
	env := []string{insideVariable + "=1", kernelsVariable + "=" + kernel}
	_ = os.Getenv(longVariable) // even if it is not set now
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "DAYBOOK_") && name != kernelsVariable && name != kernels.CacheVariable && name != vm.AccelVariable {
			env = append(env, name+"="+os.Getenv(name))
		}
	}
	return env
}

// Device returns the path of a disk or of persistent memory in the guest, such as
// Device("disk0"), with the kernel's own name (/dev/vda).
func Device(t testing.TB, name string) string {
	t.Helper()
	device, err := filepath.EvalSymlinks(filepath.Join("/dev/daybook", name))
	if err != nil {
		t.Fatal(err)
	}
	return device
}
