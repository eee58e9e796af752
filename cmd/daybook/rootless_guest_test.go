package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// rootlessHost makes two file systems on the disk, for the container of a user and for a
// machine, and their programs: a shell that creates files and syncs. The machine boots
// busybox as its init.
const rootlessHost = `set -e
echo bfq >/sys/block/` + quickstartDisk + `/queue/scheduler
pvcreate -qq /dev/daybook/disk0
vgcreate -qq vg0 /dev/daybook/disk0
for name in db1 web; do
	lvcreate -qq -y -n $name -L 256M vg0
	mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/vg0/$name
	mkdir -p /srv/$name
	mount /dev/vg0/$name /srv/$name
	chmod 777 /srv/$name
done
mkdir -p image/bin image/tmp image/usr image/etc
cp /bin/busybox image/bin
for name in sh mkdir dd rm sleep init; do ln -s busybox image/bin/$name; done
cat >image/bin/mariadbd <<'END'
#!/bin/sh
` + creatingAndSyncing + `END
chmod +x image/bin/mariadbd
tar -C image -c . >/srv/mariadb.tar
mkdir -p /var/lib/machines /etc/systemd/nspawn
cp -a image /var/lib/machines/web
cd /var/lib/machines/web
mkdir -p sbin var/lib/mysql root dev proc sys run
ln -s ../bin/busybox sbin/init
echo ID=busybox >etc/os-release
echo '::respawn:/bin/mariadbd' >etc/inittab
printf '[Files]\nBind=/srv/web:/var/lib/mysql\n[Network]\nVirtualEthernet=no\n' >/etc/systemd/nspawn/web.nspawn
useradd --create-home --uid 1000 --shell /bin/bash alice`

// asAlice runs a command as the user, as in a login of hers.
const asAlice = `cd / && sudo -u alice XDG_RUNTIME_DIR=/run/user/1000 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus `

// rootless are the two containers.
var rootless = []struct{ name, runtime, directory, cgroup, stop string }{
	{"user-1000/db1", "podman", "/srv/db1", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-", asAlice + "podman stop --time 1 db1"},
	{"web", "machine", "/srv/web", "/machine.slice/systemd-nspawn@web.service", "machinectl terminate web"},
}

// Each command of docs/rootless.md runs as it is written, and does what the page says.
// Only the disk has another name, and the container no network.
func TestGuestRootlessPodmanAndMachines(t *testing.T) {
	vmtest.Long(t)
	bin := filepath.Join(t.TempDir(), "daybook")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, kernel := range vmtest.OneKernel(t) {
		t.Run("kernel-"+kernel, func(t *testing.T) {
			vmtest.NeedRoot(t, true)
			m := vmtest.Boot(t, vm.Config{
				Kernel: kernel, Systemd: true, Engines: true, MemoryBytes: 2 << 30,
				Disks: []vm.Disk{{SizeBytes: 1 << 30, NVMe: true}},
				Give:  append(unitsOf(t, "daybook-control", "daybook-adopt"), vm.Give{Host: bin, Guest: "/usr/bin/daybook"}),
			})
			q := &quickstart{T: t, m: m, commands: readmeCommands(t, "docs/rootless.md"), used: map[string]bool{}}
			q.sh("modprobe bfq; " + rootlessHost)
			for _, c := range q.commands {
				if c.section == "Give users' containers the I/O controller" {
					q.sh(q.documented(c.text))
				}
			}
			q.sh("loginctl enable-linger alice && systemctl start user@1000")
			q.sh(asAlice + `podman import --change 'CMD ["/bin/mariadbd"]' /srv/mariadb.tar mariadb`)
			podman := ""
			for _, line := range readPage(t, "docs/rootless.md").lines {
				if strings.HasPrefix(line.text, "podman run ") {
					podman = line.text
				}
			}
			q.sh(asAlice + strings.Replace(podman, "podman run", "podman run --network none", 1))
			q.sh(q.documented("sudo machinectl start web"))

			at := q.named()
			q.controlled(at)
			for n := range rootless {
				q.adopted(n, at[n])
			}
			for _, text := range q.unused() {
				t.Errorf("docs/rootless.md has a command that this test does not run: %s", text)
			}
			q.noJournalErrors()
		})
	}
}

// unitsOf gives a guest these packaged units.
func unitsOf(t *testing.T, names ...string) (given []vm.Give) {
	t.Helper()
	for _, name := range names {
		unit, err := filepath.Abs("../../deploy/systemd/" + name + ".service")
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, vm.Give{Host: unit, Guest: "/etc/systemd/system/" + filepath.Base(unit)})
	}
	return given
}

// whileUnit starts a packaged unit, waits until done, and stops the unit.
func (q *quickstart) whileUnit(name, what string, done func() bool) {
	q.Helper()
	q.sh("systemctl daemon-reload && systemctl start " + name)
	logged := func() string {
		q.Helper()
		return q.sh("journalctl --no-pager --unit " + name + " | tail -n 20")
	}
	deadline := time.Now().Add(slowly)
	for !done() {
		if time.Now().After(deadline) {
			q.Fatalf("%s: not after %v: %s\n%s", name, slowly, what, logged())
		}
		time.Sleep(time.Second / 2)
	}
	q.sh("systemctl stop " + name)
	q.Logf("%s", logged())
}

// documented returns a command of the page that it has once.
func (q *quickstart) documented(text string) string {
	q.Helper()
	found := 0
	for _, c := range q.commands {
		if c.text == text {
			found++
		}
	}
	if found != 1 {
		q.Fatalf("the page has %q %d times", text, found)
	}
	q.used[text] = true
	return text
}

// named checks that top names both containers, with their journal, and returns their cgroups.
func (q *quickstart) named() (at []string) {
	q.Helper()
	sample := q.sh("daybook top --once --interval 10s --json")
	for _, c := range rootless {
		seen := q.sampled(sample, c.name)
		q.Logf("%+v", seen)
		if seen.Runtime != c.runtime || seen.JournalBytes == 0 || !strings.HasPrefix(seen.Cgroup, c.cgroup) {
			q.Errorf("%s: %+v; want one of %s with a journal, in %s", c.name, seen, c.runtime, c.cgroup)
		}
		at = append(at, seen.Cgroup)
	}
	return at
}

// controlled runs control with the page's configuration: both have their weights, which a
// reload of the managers does not change, and at the end those from before.
func (q *quickstart) controlled(at []string) {
	q.Helper()
	var yaml []string
	inside := false
	for _, line := range readPage(q.T, "docs/rootless.md").lines {
		switch {
		case strings.HasPrefix(line.text, "```"):
			inside = line.text == "```yaml"
		case inside:
			yaml = append(yaml, line.text)
		}
	}
	q.sh("cat >control.yaml <<'END'\ninterval: 1s\n" + localDisk(strings.Join(yaml, "\n")) + "\nEND")
	weights := func() (text string) {
		q.Helper()
		for _, c := range at {
			text += q.sh("cd /sys/fs/cgroup; grep -H . ."+c+"/io.bfq.weight") + "\n"
		}
		return text
	}
	before := weights()
	control := q.start("exec daybook control --config control.yaml")
	controlled := func() bool {
		now := weights()
		podman, machine := weightOn(now, "."+at[0]), weightOn(now, "."+at[1])
		return strings.Contains(now, ":259:0 ") && podman > 2*machine
	}
	q.until("control sets the weights", control, controlled)
	q.sh("systemctl daemon-reload")
	if !controlled() {
		q.Errorf("after a reload of the system's manager:\n%s", weights())
	}
	// The user's manager removes the weights of its units on single disks.
	q.sh(asAlice + "systemctl --user daemon-reload")
	q.until("control sets the weights again", control, controlled)
	q.interrupt(control)
	q.Logf("control: %s", control.out)
	if after := weights(); after != before {
		q.Errorf("after control:\n%s\nbefore:\n%s", after, before)
	}

	// The unit has fewer capabilities. The files of a user's container are the user's.
	q.sh("mkdir -p /etc/daybook && mv control.yaml /etc/daybook")
	q.whileUnit("daybook-control", "control sets the weights", controlled)
	if after := weights(); after != before {
		q.Errorf("after the unit of control:\n%s\nbefore:\n%s", after, before)
	}
}

// adopted runs adopt by the container's name, by its unit and by hand. The journal is in the
// container's cgroup; the container ends, and leaves no cgroup.
func (q *quickstart) adopted(n int, at string) {
	q.Helper()
	c := rootless[n]
	thread := func() string {
		q.Helper()
		return q.sh(`dm=$(basename $(readlink -f $(findmnt -no SOURCE ` + c.directory + `))); sed -n s/^0:://p /proc/$(pgrep "jbd2/$dm-8")/cgroup`)
	}
	placed := func() bool { return strings.HasPrefix(thread(), at+"/journal-") }
	q.sh("printf 'mounts: [{mountpoint: " + c.directory + ", container: " + c.name + "}]\\n' >/etc/daybook/adopt.yaml")
	q.whileUnit("daybook-adopt", "the journal is in "+at, placed)
	if now := thread(); now != "/" {
		q.Errorf("after the unit of adopt the journal of %s is in %s", c.name, now)
	}
	adopt := q.start("exec " + strings.TrimPrefix(q.documented("sudo daybook adopt "+c.directory+" --container "+c.name), "sudo "))
	q.until("the journal is in "+at, adopt, placed)
	if sample := q.sampled(q.sh("daybook top --once --interval 5s --json"), c.name); sample.JournalBytes == 0 {
		q.Errorf("adopted, %s has no journal: %+v", c.name, sample)
	}
	q.sh(c.stop)
	awaittest.Until(q.T, slowly, "the cgroup of "+c.name+" is removed", func() bool {
		_, err := q.m.Run(q.Context(), "test", "!", "-e", "/sys/fs/cgroup"+at)
		return err == nil
	})
	if now := thread(); now != "/" {
		q.Errorf("after the end of %s its journal is in %s", c.name, now)
	}
	q.interrupt(adopt)
}
