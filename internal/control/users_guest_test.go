package control

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/vm/vmtest"
)

const (
	userManager = "/user.slice/user-4242.slice/user@4242.service"
	userUnit    = userManager + "/app.slice/db.service"
	machineUnit = "/machine.slice/systemd-nspawn@web.service"
)

// startUserManager starts the manager of a user, with these settings. The guest has no
// login service, which would make the session and the directory.
func startUserManager(t *testing.T, settings string) {
	t.Helper()
	const dropIn = "/run/systemd/system/user@4242.service.d/test.conf"
	if err := os.MkdirAll(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dropIn, []byte("[Service]\nPAMName=\nEnvironment=XDG_RUNTIME_DIR=/run/user/4242\n"+settings), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "sh", "-ec", "grep -q ^daybooktest: /etc/passwd || echo daybooktest:x:4242:4242::/:/bin/sh >> /etc/passwd; install -d -o 4242 -g 4242 -m 700 /run/user/4242")
	systemctl(t, "daemon-reload")
	systemctl(t, "restart", "user@4242.service")
}

func asUser(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, append([]string{"setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups", "env", "XDG_RUNTIME_DIR=/run/user/4242"}, args...)...)
}

// A user's units and a machine: who is named, and who gets weights.
func TestGuestUserUnitsAndMachinesAreControlled(t *testing.T) {
	vmtest.Long(t)
	// A guest of its own: once io.cost was on, systemd writes weights to io.weight, too, and
	// never removes them there.
	vmtest.Systemd(t, vmtest.Config{Disks: []string{"64M,nvme"}, OneKernel: true, Fresh: true}, func(t *testing.T) {
		tree, err := cgroup.Find()
		if err != nil {
			t.Fatal(err)
		}
		b := openTestbed(t, tree, vmtest.Device(t, "disk0"))
		_ = exec.Command("modprobe", "bfq").Run()
		b.useBFQ(t)
		run(t, "systemd-run", "--quiet", "--collect", "--unit=systemd-nspawn@web", "--slice=machine.slice", "-p", "IOAccounting=yes", "-p", "Delegate=yes", "sleep", "infinity")
		t.Cleanup(func() { systemctl(t, "stop", "systemd-nspawn@web.service", "user@4242.service") })
		if b.host, err = OpenHost(tree, b.disk); err != nil {
			t.Fatal(err)
		}
		names := container.NewResolver(container.Config{})
		for at, want := range map[string]string{machineUnit + "/payload/system.slice/a.service": "machine web", userUnit: "systemd db.service"} {
			if i := names.Resolve(at); i.Runtime+" "+i.Name != want {
				t.Errorf("%s is %+v; want %s", at, i, want)
			}
		}

		startUserManager(t, "IOAccounting=yes\n")
		asUser(t, "systemd-run", "--user", "--quiet", "--unit=db", "-p", "IOAccounting=yes", "sleep", "infinity")
		t.Run("the manager and a machine", func(t *testing.T) {
			b.controlsUnits(t, map[string]string{userManager: "user@4242.service", machineUnit: "systemd-nspawn@web.service"}, func() { systemctl(t, "daemon-reload") })
		})

		startUserManager(t, "Delegate=pids memory cpu io\n")
		for _, unit := range []string{"db", "web"} {
			asUser(t, "systemd-run", "--user", "--quiet", "--unit="+unit, "-p", "IOAccounting=yes", "-p", "IOWeight=100", "sleep", "infinity")
		}
		t.Run("units of a user with the io controller", func(t *testing.T) {
			b.controlsUnits(t, map[string]string{userUnit: "", userManager + "/app.slice/web.service": ""}, func() { asUser(t, "systemctl", "--user", "daemon-reload") })
		})
	})
}

// controlsUnits checks that control sets the weights 200 and 300, that a reload of the
// service manager changes none, and that the weights are restored. owners are the units
// of systemd that have the cgroups; "" for those whose files are written.
func (b *testbed) controlsUnits(t *testing.T, owners map[string]string, reload func()) {
	b.cgroups = nil
	options := b.options(t.TempDir())
	options.Config.Containers = nil
	for at, owner := range owners {
		if unit := b.unitOf(t, at); unit != owner {
			t.Errorf("%s: unit %q; want %q", at, unit, owner)
		}
		options.Config.Containers = append(options.Config.Containers, Rule{Match: at, Weight: uint64(100 * (len(b.cgroups) + 2))})
		b.cgroups = append(b.cgroups, at)
	}
	options.OpenSource = func([]string, time.Duration) (account.Source, error) { return evenSource{b.disk.Name, b.cgroups}, nil }
	before := b.settings(t)
	intervals, stop := underControl(t, options)
	check := func(when string) {
		t.Helper()
		for n, weight := range []string{"200", "300"} {
			awaitInterval(t, intervals, when+", "+b.cgroups[n]+" has the weight "+weight, func() bool { return b.hasWeight(b.cgroups[n], weight) })
		}
	}
	check("under control")
	reload()
	check("after a reload of the manager")
	stop()
	if after := b.settings(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
}
