package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/program"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// chroot is a minimal Debian in a directory of the test, without systemd running.
func chroot(t *testing.T) string {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mmdebstrap")
	root := filepath.Join(t.TempDir(), "root")
	// mmdebstrap mounts /proc, /sys and the host's /dev/shm in it. If it is killed, they
	// must not be there when the directory is removed.
	if _, err := program.Run(t.Context(), program.Command{
		Path: "mmdebstrap", Args: []string{"--quiet", "--mode=root", "--variant=essential", "bookworm", root}, OwnMounts: true,
	}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	return root
}

// earlier is a package with the same content and an earlier version.
func earlier(t *testing.T, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "package")
	run(t, "dpkg-deb", "-R", deb, dir)
	run(t, "sed", "-i", "s/^Version: .*/Version: 0.1.0~20260101000000.0000000/", filepath.Join(dir, "DEBIAN/control"))
	old := filepath.Join(t.TempDir(), "old.deb")
	run(t, "dpkg-deb", "-Zgzip", "-z1", "-b", dir, old)
	return old
}

// files lists a root file system but for dpkg's and rpm's own records, and
// /run/daybook, which stays until the next boot.
func files(t *testing.T, root string) []string {
	t.Helper()
	out := run(t, "sh", "-c", `cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/log -o -path ./root/.rpmdb -o -path ./run/daybook -o -path ./var/lib/rpm \) -prune -o -print | sort`, "sh", root)
	return strings.Split(strings.TrimSpace(out), "\n")
}

// added are the lines of after that before lacks, and lacking those that are gone.
func added(before, after []string) string {
	was := map[string]bool{}
	for _, line := range before {
		was[line] = line != ""
	}
	var more []string
	for _, line := range after {
		if line != "" && !was[line] {
			more = append(more, line)
		}
		delete(was, line)
	}
	for line, there := range was {
		if there {
			more = append(more, "gone:"+line)
		}
	}
	return strings.Join(more, " ")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// All packages are the same from two builds, and lintian finds nothing.
func TestTwoBuildsOfAllPackagesAreTheSame(t *testing.T) {
	vmtest.Long(t)
	needs.Tool(t, "lintian") // the build runs it
	needs.Tool(t, "rpm")
	dir := twice(t, thisVersion)
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 4 {
		t.Fatalf("%q, %v; want daybook of two architectures, nvjournal and ext4nvj-dkms", debs, err)
	}
	for arch, machine := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		rpm := the(t, dir, "daybook-*."+machine+".rpm")
		if got := run(t, "rpm", "-qp", "--nosignature", "--qf", "%{VERSION} %{ARCH}", rpm); !strings.HasSuffix(got, thisVersion+" "+machine) {
			t.Errorf("%s is %q", rpm, got)
		}
		for _, pattern := range []string{"daybook-image_*_" + arch + ".tar", "daybook_*_" + arch + ".cdx.json"} {
			the(t, dir, pattern)
		}
	}
	sbom, err := os.ReadFile(the(t, dir, "daybook_*_amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"bomFormat": "CycloneDX"`, `pkg:golang/github.com/cilium/ebpf@`, `"licenses"`} {
		if !strings.Contains(string(sbom), want) {
			t.Errorf("the SBOM lacks %s", want)
		}
	}
	image := the(t, dir, "daybook-image_*_amd64.tar")
	if listed := run(t, "tar", "-tf", image); !strings.Contains(listed, "manifest.json") {
		t.Errorf("the image has %s", listed)
	}
	installRPM(t, the(t, dir, "daybook-*.x86_64.rpm"))
}

// installRPM installs, verifies and removes, with rpm's database in the chroot.
func installRPM(t *testing.T, rpm string) {
	t.Helper()
	root := chroot(t)
	before := files(t, root)
	with := func(args ...string) string {
		return run(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm"}, args...)...)
	}
	with("--initdb")
	// The chroot is Debian's: rpm does not know that it has /bin/sh.
	with("-i", "--nodeps", "--nosignature", rpm)
	with("-V", "--nodeps", "daybook")
	if got := run(t, "chroot", root, "daybook", "version"); !strings.Contains(got, "v0.1.0+gtest") {
		t.Errorf("the program says %q", got)
	}
	write(t, filepath.Join(root, "etc/daybook/control.yaml"), "devices: [sda]\n")
	with("-U", "--nodeps", "--nosignature", "--force", rpm)
	with("-e", "daybook")
	// Directories of shells that are not there have no other owner.
	allowed := "./etc/daybook ./etc/daybook/control.yaml ./usr/share/fish ./usr/share/fish/vendor_completions.d ./usr/share/zsh ./usr/share/zsh/site-functions"
	if left := added(before, files(t, root)); left != allowed {
		t.Errorf("after the removal there are %s", left)
	}
}

func TestDebianPackageInAChroot(t *testing.T) {
	vmtest.Long(t)
	root := chroot(t)
	source, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	deb := the(t, build(t, source, "022", thisVersion, nil, "-a", "amd64", "-f", "deb"), "*.deb")
	before := files(t, root)
	dpkg := func(args ...string) string {
		return run(t, "dpkg", append([]string{"--root=" + root, "--log=" + os.DevNull}, args...)...)
	}
	wants := func(unit string) bool {
		_, err := os.Lstat(filepath.Join(root, "etc/systemd/system/multi-user.target.wants", unit+".service"))
		return err == nil
	}
	dpkg("-i", earlier(t, deb))
	if !wants("daybook-attach") || wants("daybook-control") || wants("daybook-metrics") || wants("daybook-volumes") {
		t.Error("not daybook-attach alone is enabled")
	}
	// The administrator's decisions outlive an upgrade.
	links := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	if err := os.Remove(filepath.Join(links, "daybook-attach.service")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/lib/systemd/system/daybook-control.service", filepath.Join(links, "daybook-control.service")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/daybook/control.yaml"), "devices: [sda]\n")
	write(t, filepath.Join(root, "var/lib/daybook/volumes/volumes/db1/volume.json"), "{}")
	dpkg("-i", deb)
	if wants("daybook-attach") || !wants("daybook-control") {
		t.Error("the upgrade has changed which units are enabled")
	}
	if got := dpkg("-s", "daybook"); !strings.Contains(got, thisVersion) {
		t.Errorf("installed is %s", got)
	}
	dpkg("-r", "daybook")
	state := "./var/lib/daybook ./var/lib/daybook/volumes ./var/lib/daybook/volumes/volumes ./var/lib/daybook/volumes/volumes/db1 ./var/lib/daybook/volumes/volumes/db1/volume.json"
	// A later installation finds which units were enabled.
	left := strings.Join(slices.DeleteFunc(strings.Fields(added(before, files(t, root))), func(path string) bool {
		return strings.HasPrefix(path, "./etc/systemd/") || strings.HasPrefix(path, "./var/lib/systemd/")
	}), " ")
	if !wants("daybook-control") {
		t.Error("the removal has forgotten that daybook-control was enabled")
	}
	if left != "./etc/daybook ./etc/daybook/control.yaml "+state {
		t.Errorf("after remove there are %s", left)
	}
	if said := dpkg("-P", "daybook"); !strings.Contains(said, "is kept") {
		t.Errorf("purge says %s", said)
	}
	if left := added(before, files(t, root)); left != state {
		t.Errorf("after a purge with a volume there are %s", left)
	}
	if err := os.RemoveAll(filepath.Join(root, "var/lib/daybook/volumes/volumes/db1")); err != nil {
		t.Fatal(err)
	}
	dpkg("-i", deb)
	dpkg("-P", "daybook")
	if left := added(before, files(t, root)); left != "" {
		t.Errorf("after a purge there are %s", left)
	}
}

// With systemd and real disks: nothing starts by the installation, an upgrade leaves
// control, adopt and volumes as they are, a removal undoes what control and adopt changed.
func TestGuestDebianPackage(t *testing.T) {
	vmtest.Long(t)
	source, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	deb := the(t, build(t, source, "022", thisVersion, nil, "-a", "amd64", "-f", "deb"), "*.deb")
	vmtest.EachKernel(t, func(t *testing.T, kernel string) { debianPackage(t, kernel, deb) })
}

func debianPackage(t *testing.T, kernel, deb string) {
	vmtest.Need(t, kernel)
	vmtest.NeedRoot(t, false)
	m := vmtest.Boot(t, vm.Config{Kernel: kernel, Systemd: true, Modules: []string{"bfq"}, Disks: []vm.Disk{{SizeBytes: 256 << 20}},
		Give: []vm.Give{{Host: deb, Guest: "/root/new.deb"}, {Host: earlier(t, deb), Guest: "/root/old.deb"}}})
	sh := func(script string) string {
		t.Helper()
		out, err := m.Run(t.Context(), "sh", "-c", "exec 2>&1; "+script)
		if err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
		return strings.TrimSpace(out)
	}
	want := func(script, want string) {
		t.Helper()
		if got := sh(script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	const find = `find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /root -o -path /tmp -o -path /var/lib/dpkg -o -path '*/daybook-vm*' \) -prune -o -path '*daybook*' -print | sort`
	before := strings.Split(sh(find), "\n")
	units := "daybook-attach daybook-control daybook-docker.socket daybook-docker daybook-metrics daybook-volumes daybook-adopt"
	eachUnit := func(ask string) string {
		return sh(`for u in ` + units + `; do echo "$(systemctl ` + ask + ` $u)"; done | tr '\n' ' '`)
	}

	t.Log(sh("dpkg -i /root/old.deb"))
	if got := eachUnit("is-enabled"); got != "enabled disabled disabled disabled disabled disabled disabled" {
		t.Errorf("enabled after the installation: %s", got)
	}
	if got := eachUnit("is-active"); got != "inactive inactive inactive inactive inactive inactive inactive" {
		t.Errorf("active after the installation: %s", got)
	}
	sh(`echo bfq >/sys/block/vda/queue/scheduler; mkdir -p /etc/daybook; printf 'devices: [vda]\ntunables: {low_latency: 0}\ncontainers: [{match: "x*", weight: 100}]\n' >/etc/daybook/control.yaml`)
	sh(`systemctl start daybook-attach daybook-docker.socket daybook-volumes daybook-control`)
	sh(`systemctl enable --quiet daybook-control`)
	const lowLatency = `cat /sys/block/vda/queue/iosched/low_latency`
	sh(`for i in $(seq 600); do [ "$(` + lowLatency + `)" = 0 ] && exit 0; sleep 0.1; done; systemctl status daybook-control; exit 1`)
	if got := eachUnit("is-active"); got != "active active active inactive inactive active inactive" {
		t.Errorf("active after the start: %s", got)
	}
	sh(`mkdir /srv/db1 && daybook volume create db1 --size 64M && daybook volume attach db1 --target /srv/db1 --persist && echo x >/srv/db1/x`)

	// A placement that no process keeps.
	sh(`mkdir /srv/once && mke2fs -q -t ext4 /dev/vda && mount /dev/vda /srv/once && systemd-run --quiet --unit once sleep infinity`)
	sh(`daybook adopt /srv/once --cgroup /system.slice/once.service --once`)
	const journalAt = `cat /proc/$(pgrep jbd2/vda)/cgroup`
	want(journalAt, "0::/system.slice/once.service/journal-vda")

	const pids = `systemctl show -p MainPID --value daybook-control daybook-volumes`
	running := sh(pids)
	t.Log(sh("dpkg -i /root/new.deb"))
	want(pids, running)
	want(lowLatency, "0")
	want("cat /srv/db1/x", "x")
	want("systemctl is-enabled daybook-attach daybook-control | tr '\\n' ' '", "enabled enabled")
	want("dpkg-query -W -f '${Version}' daybook", thisVersion)
	want(journalAt, "0::/system.slice/once.service/journal-vda")

	t.Log(sh("dpkg -r daybook"))
	want(lowLatency, "1")
	want("cat /srv/db1/x", "x")
	want("pgrep -x daybook || echo none", "none")
	want(journalAt, "0::/")
	want("systemctl stop once; [ -d /sys/fs/cgroup/system.slice/once.service ] && echo left || echo removed", "removed")
	sh("umount /srv/once")
	for _, left := range strings.Fields(added(before, strings.Split(sh(find), "\n"))) {
		if !strings.HasPrefix(left, "/var/lib/daybook") && left != "/etc/daybook" && left != "/etc/daybook/control.yaml" &&
			!strings.HasPrefix(left, "/etc/systemd/system/") && !strings.HasPrefix(left, "/var/lib/systemd/") {
			t.Errorf("after remove there is %s", left)
		}
	}
	if said := sh("dpkg -P daybook"); !strings.Contains(said, "is kept") {
		t.Errorf("purge says %s", said)
	}
	want("cat /srv/db1/x", "x")

	// The program knows the volume again.
	sh("dpkg -i /root/new.deb && daybook volume detach db1 && daybook volume delete db1")
	t.Log(sh("dpkg -P daybook"))
	if left := added(before, strings.Split(sh(find), "\n")); left != "" {
		t.Errorf("after a purge there are %s", left)
	}
	want("systemctl is-system-running", "running")
}
