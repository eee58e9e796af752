package control

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// newUnitbed makes a testbed whose cgroups belong to three units: without weights,
// with a weight, with a weight on the disk.
func newUnitbed(t *testing.T, use func(*testbed, *testing.T)) *testbed {
	t.Helper()
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	node := vmtest.Device(t, "disk0")
	b := openTestbed(t, tree, node)
	_ = exec.Command("modprobe", "bfq").Run()
	use(b, t)
	const slice = "daybooktest.slice"
	b.parent = "/" + slice
	t.Cleanup(func() { systemctl(t, "stop", slice) })
	for name, property := range map[string]string{"a": "Description=none", "b": "IOWeight=250", "c": "IODeviceWeight=/dev/daybook/disk0 700"} {
		run(t, "systemd-run", "--quiet", "--collect", "--unit="+name, "--slice="+slice, "-p", "IOAccounting=yes", "-p", property, "sleep", "infinity")
	}
	for _, name := range []string{"a", "b", "c"} {
		b.cgroups = append(b.cgroups, b.parent+"/"+name+".service")
	}
	b.more = func() string {
		return run(t, "systemctl", "show", "-p", "Id", "-p", "IOWeight", "-p", "IODeviceWeight", "a.service", "b.service", "c.service")
	}
	if b.host, err = OpenHost(tree, b.disk); err != nil {
		t.Fatal(err)
	}
	return b
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func systemctl(t *testing.T, args ...string) {
	t.Helper()
	run(t, append([]string{"systemctl"}, args...)...)
}

// One test, and so one boot, for all checks with systemd, because it takes long.
func TestGuestWeightsOfUnitsAreSetBySystemd(t *testing.T) {
	vmtest.Systemd(t, vmtest.Config{Disks: []string{"64M,nvme"}, OneKernel: true}, func(t *testing.T) {
		// BFQ first: while io.cost is on, systemd writes the weight of a unit into io.weight
		// as well, and never removes it there.
		for _, name := range []string{"bfq", "io.cost"} {
			for _, test := range []struct {
				what  string
				quick bool // in make test, too
				body  func(*testing.T, *testbed)
			}{
				{"daemon-reload changes no weight", name == "bfq", reloadsChangeNoWeight},
				{"cgroups below are not systemd's", name == "bfq", belowIsNotSystemds},
				{"restarts restore weights", name == "io.cost", restartsRestoreWeights},
				{"kills leave weights restorable", name == "io.cost", func(t *testing.T, b *testbed) { killsLeaveEverySettingRestorable(t, b, long(20, 3)) }},
			} {
				if !test.quick && long(1, 0) == 0 {
					continue
				}
				t.Run(name+": "+test.what, func(t *testing.T) { test.body(t, newUnitbed(t, controllers[name])) })
			}
		}
	})
}

// long selects the long form of a test if it is requested.
func long(long, short int) int {
	if vmtest.IsLong() {
		return long
	}
	return short
}

// evenSource makes samples in which each cgroup gets its share, so that weights do
// not change.
type evenSource struct {
	device  string
	cgroups []string
}

func (s evenSource) Next(ctx context.Context) (account.Sample, error) {
	const pause = 100 * time.Millisecond
	select {
	case <-ctx.Done():
		return account.Sample{}, ctx.Err()
	case <-time.After(pause):
	}
	device := account.Device{Device: s.device}
	for n, cgroup := range s.cgroups {
		device.Containers = append(device.Containers, account.Container{Cgroup: cgroup, ChargedReadBytes: uint64(n+2) * 10e6, RequestSeconds: 1})
	}
	return account.Sample{IntervalSeconds: 1, Devices: []account.Device{device}}, nil
}

func (evenSource) Close() error { return nil }

// underControl runs control until stop, and returns its intervals: each waits until
// it is received. The channel is closed when control ends.
func underControl(t *testing.T, options Options) (intervals <-chan Decision, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	decisions := make(chan Decision)
	options.OnInterval = func(d Decision) {
		select {
		case decisions <- d:
		case <-ctx.Done():
		}
	}
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, options)
		close(decisions)
		ended <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return decisions, stop
}

// awaitInterval waits until ok says so after an interval. systemd in a guest can be busy for
// seconds, and control does not wait for it.
func awaitInterval(t *testing.T, intervals <-chan Decision, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaittest.Patience); ; {
		if _, goesOn := <-intervals; !goesOn {
			t.Fatalf("%s: control has ended", what)
		}
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v without success: %s", awaittest.Patience, what)
		}
	}
}

// hasWeight reports whether the weight file of a cgroup has this weight on the disk.
func (b *testbed) hasWeight(cgroup, weight string) bool {
	text, err := os.ReadFile(filepath.Join(b.dir(cgroup), b.host.Weights.File()))
	return err == nil && strings.Contains(string(text), b.disk.Dev.String()+" "+weight+"\n")
}

// unitOf asks systemd with patience.
func (b *testbed) unitOf(t *testing.T, cgroup string) string {
	t.Helper()
	defer b.host.Units.Await()()
	unit, _, err := b.host.Units.Find(cgroup)
	if err != nil {
		t.Errorf("%s: %v", cgroup, err)
	}
	return unit
}

// daemon-reload of systemd undoes weights that are only in the files.
func reloadsChangeNoWeight(t *testing.T, b *testbed) {
	before := b.settings(t)
	options := b.options(t.TempDir())
	options.Log = slog.New(slog.NewTextHandler(t.Output(), nil)) // why systemd was not used, if it was not
	options.Config.Containers = []Rule{
		{Match: b.cgroups[0], Weight: 200}, {Match: b.cgroups[1], Weight: 300}, {Match: b.cgroups[2], Weight: 400},
	}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) {
		return evenSource{b.disk.Name, b.cgroups}, nil
	}
	intervals, stop := underControl(t, options)
	// While systemd does not answer, control writes files, and sets the units' weights later.
	for n, weight := range []uint64{200, 300, 400} {
		cgroup := b.cgroups[n]
		awaitInterval(t, intervals, fmt.Sprintf("%s and its unit have the weight %d", cgroup, weight), func() bool {
			now, err := b.host.Units.Weight(filepath.Base(cgroup))
			return err == nil && now == b.host.Units.Of(weight) && b.hasWeight(cgroup, fmt.Sprint(weight))
		})
	}
	under := b.settings(t)
	for n := range b.cgroups {
		unit := strings.Split(b.more(), "\n\n")[n]
		if !strings.Contains(unit, "IODeviceWeight=/dev/") {
			t.Errorf("systemd does not know the weight of %s: %s", b.cgroups[n], unit)
		}
	}
	for n := range long(100, 3) {
		systemctl(t, "daemon-reload")
		<-intervals
		d := <-intervals
		if now := b.settings(t); now != under {
			t.Fatalf("reload %d: under control\n%safter it\n%s%+v", n, under, now, d)
		}
	}
	stop()
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}

// In a delegated unit, and below any other, files are written.
func belowIsNotSystemds(t *testing.T, b *testbed) {
	below := b.cgroups[0] + "/below.service"
	b.mkdir(t, below)
	for cgroup, want := range map[string]string{b.cgroups[0]: "a.service", b.parent: "daybooktest.slice", below: "", "/none.service": ""} {
		if unit := b.unitOf(t, cgroup); unit != want {
			t.Errorf("%s: unit %q; want %q", cgroup, unit, want)
		}
	}
}

// A unit exists longer than its cgroup, and systemd gives the unit's weight to the
// next one.
func restartsRestoreWeights(t *testing.T, b *testbed) {
	const unit, fragment = "d.service", "/run/systemd/system/d.service"
	if err := os.WriteFile(fragment, []byte("[Service]\nExecStart=sleep infinity\nSlice="+filepath.Base(b.parent)+"\nIOAccounting=yes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		systemctl(t, "stop", unit)
		if err := os.Remove(fragment); err != nil {
			t.Error(err)
		}
		systemctl(t, "daemon-reload")
	})
	systemctl(t, "daemon-reload")
	systemctl(t, "start", unit)
	cgroup := b.parent + "/" + unit
	options := b.options(t.TempDir())
	options.Config.Containers = []Rule{{Match: b.cgroups[0], Weight: 200}, {Match: cgroup, Weight: 300}}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) {
		return evenSource{b.disk.Name, []string{b.cgroups[0], cgroup}}, nil
	}
	intervals, stop := underControl(t, options)
	// is reports whether the unit has a weight on the disk, the one in its cgroup's file,
	// as set says.
	is := func(set, running bool) (string, bool) {
		defer b.host.Units.Await()()
		unitWeight, err := b.host.Units.Weight(unit)
		text, ok := fmt.Sprintf("the unit has the weight %d, %v", unitWeight, err), err == nil && (unitWeight != 0) == set
		if running {
			now, err := b.host.Weights.Get(cgroup)
			text, ok = fmt.Sprintf("%s, and the cgroup %+v, %v", text, now, err), ok && err == nil && (now.Device != 0) == set
		}
		return text, ok
	}
	await := func(when string, set, running bool) {
		t.Helper()
		awaitInterval(t, intervals, fmt.Sprintf("%s, with a weight on the disk: %t", when, set), func() bool { _, ok := is(set, running); return ok })
	}
	expect := func(when string, set, running bool) {
		t.Helper()
		if text, ok := is(set, running); !ok {
			t.Errorf("%s: %s; want a weight on the disk: %t", when, text, set)
		}
	}
	await("at first", true, true)
	systemctl(t, "restart", unit)
	await("restarted", true, true)
	systemctl(t, "stop", unit)
	await("stopped", false, false)
	systemctl(t, "start", unit)
	await("started", true, true)
	stop()
	expect("in the end", false, true)
	systemctl(t, "restart", unit)
	expect("restarted in the end", false, true)
}
