package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// quickstartDisk is what the README's disk sda is called in the guest.
const quickstartDisk = "nvme0n1"

// creatingAndSyncing is the work of a container's shell.
const creatingAndSyncing = `cd /var/lib/mysql || exit 1
n=0
while n=$((n + 1)); do
	mkdir table$n && dd if=/dev/zero of=table$n/row bs=4k count=1 conv=fsync 2>/dev/null
	rm -rf table$((n - 1))
	sleep 0.5
done
`

// quickstartHost makes what the README takes for granted: a volume group vg0, and an
// image mariadb. The image's program is a shell that, like the real image's, refuses to
// start without a decision about the password of root, and then creates files and syncs.
// A second file system is on the same disk: that of the containers without a volume.
const quickstartHost = `set -e
pvcreate -qq /dev/daybook/disk0
vgcreate -qq vg0 /dev/daybook/disk0
lvcreate -qq -y -n data -L 256M vg0
mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/vg0/data
mkdir -p /srv/data image/bin image/tmp
mount /dev/vg0/data /srv/data
cp /bin/busybox image/bin
for name in sh mkdir dd rm sleep; do ln -s busybox image/bin/$name; done
cat >image/bin/mariadbd <<'END'
#!/bin/sh
[ -n "$MARIADB_ROOT_PASSWORD$MARIADB_ALLOW_EMPTY_ROOT_PASSWORD$MARIADB_RANDOM_ROOT_PASSWORD" ] || {
	echo "Database is uninitialized and password option is not specified" >&2
	exit 1
}
` + creatingAndSyncing + `END
chmod +x image/bin/mariadbd
tar -C image -c . >mariadb.tar`

// quickstart is a guest in which commands of the README run.
type quickstart struct {
	*testing.T
	m        *vm.Machine
	commands []readmeCommand
	used     map[string]bool
}

type readmeCommand struct{ section, text string }

// readmeCommands returns the commands of a page's blocks without a language, each with
// its continued lines and the name of its section.
func readmeCommands(t *testing.T, path string) (commands []readmeCommand) {
	t.Helper()
	section, open := "", ""
	for _, line := range readPage(t, path).lines {
		if name, ok := strings.CutPrefix(line.text, "## "); ok && !line.code {
			section = name
		}
		if !line.shell || strings.HasPrefix(line.text, "```") || line.text == "" {
			continue
		}
		open += line.text
		if strings.HasSuffix(line.text, `\`) {
			open += "\n"
			continue
		}
		commands = append(commands, readmeCommand{section, open})
		open = ""
	}
	return commands
}

// command returns the one command of the README that begins so, for this guest's disk.
func (q *quickstart) command(start string) string {
	q.Helper()
	if !slices.Contains(readmeStarts, start) {
		q.Fatalf("readmeStarts lacks %q", start)
	}
	var found []string
	for _, c := range q.commands {
		if strings.HasPrefix(c.text+" ", start+" ") {
			found = append(found, c.text)
		}
	}
	if len(found) > 1 { // the one without more arguments
		found = slices.DeleteFunc(found, func(text string) bool {
			rest, _, _ := strings.Cut(strings.TrimPrefix(text, start), "#")
			return strings.TrimSpace(rest) != ""
		})
	}
	if len(found) != 1 {
		q.Fatalf("README.md has %d commands that begin with %q; want one: %q", len(found), start, q.commands)
	}
	q.used[found[0]] = true
	return localDisk(found[0])
}

func localDisk(text string) string {
	return regexp.MustCompile(`\bsda\b`).ReplaceAllString(text, quickstartDisk)
}

// sh runs a script and returns what it prints, without errors.
func (q *quickstart) sh(script string) string {
	q.Helper()
	out, err := q.try(script)
	if err != nil {
		q.Fatalf("%s: %v", script, err)
	}
	return strings.TrimSpace(out)
}

func (q *quickstart) try(script string) (string, error) {
	started := time.Now()
	out, err := q.m.Run(q.Context(), "bash", "-c", script)
	q.Logf("%4.1f s: %s\n%s", time.Since(started).Seconds(), script, shortened(out))
	return out, err
}

func shortened(text string) string {
	const most = 2000
	if len(text) > most {
		return text[:most] + fmt.Sprintf("... (%d bytes)", len(text))
	}
	return text
}

// runningCommand is a command that runs until it is ended.
type runningCommand struct {
	*vm.Process
	out *sharedBuffer
}

// sharedBuffer is written to and read at the same time.
type sharedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *sharedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *sharedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (q *quickstart) start(script string) runningCommand {
	q.Helper()
	out := &sharedBuffer{}
	p, err := q.m.Start(vm.Command{Args: []string{"bash", "-c", script}, Stdout: out, Stderr: out})
	if err != nil {
		q.Fatalf("%s: %v", script, err)
	}
	return runningCommand{p, out}
}

// interrupt is Ctrl-C.
func (q *quickstart) interrupt(r runningCommand) {
	q.Helper()
	if err := r.Signal(syscall.SIGINT); err != nil {
		q.Fatal(err)
	}
	if err := r.Wait(q.Context()); err != nil {
		var exit *vm.ExitError
		if !errors.As(err, &exit) || exit.Status() != 130 {
			q.Errorf("after Ctrl-C: %v\n%s", err, r.out)
		}
	}
}

func (q *quickstart) until(what string, r runningCommand, done func() bool) {
	q.Helper()
	awaittest.Until(q.T, slowly, what, func() bool {
		select {
		case <-r.Done():
			q.Fatalf("%s: the command ended: %s", what, r.out)
		default:
		}
		return done()
	})
}

// readmeStarts are the starts of the commands that the test in the guest runs.
var readmeStarts = []string{
	"make build",
	"sudo install bin/daybook /usr/bin/",
	"sudo daybook doctor",
	"sudo daybook top",
	"sudo daybook top --once",
	"sudo daybook blame;",
	"sudo daybook control --config /etc/daybook/control.yaml --dry-run",
	"sudo daybook control --config /etc/daybook/control.yaml",
	"sudo daybook restore",
	"sudo daybook volume create db1",
	"sudo daybook volume attach db1",
	"docker run",
}

// A command of the README that changes must change in the test in the guest, which is a
// long one.
func TestTheReadmesCommandsAreThoseOfItsTest(t *testing.T) {
	q := &quickstart{T: t, commands: readmeCommands(t, "README.md"), used: map[string]bool{}}
	for _, start := range readmeStarts {
		q.command(start)
	}
	for _, text := range q.unused() {
		t.Errorf("the README has a command that the test does not run: %s", text)
	}
	if scheduler, yaml := readmeControl(t); scheduler == "" || yaml == "" {
		t.Errorf("the README chooses BFQ by %q, and has the configuration %q", scheduler, yaml)
	}
}

// readmeControl returns the README's command that chooses BFQ, which works without a root
// shell, and its control.yaml; empty if it has none.
func readmeControl(t *testing.T) (scheduler, yaml string) {
	t.Helper()
	page := readPage(t, "README.md")
	for n, line := range page.lines {
		if m := regexp.MustCompile("`(echo bfq \\| sudo tee [^`]*)`").FindStringSubmatch(line.text); m != nil {
			scheduler = m[1]
		}
		if line.text == "```yaml" {
			for _, more := range page.lines[n+1:] {
				if more.text == "```" {
					break
				}
				yaml += more.text + "\n"
			}
		}
	}
	return scheduler, yaml
}

// unused are the commands for users that did not run. The demonstration and the tests need the
// source.
func (q *quickstart) unused() (texts []string) {
	for _, c := range q.commands {
		if !q.used[c.text] && !strings.HasPrefix(c.text, "sudo make ") {
			texts = append(texts, c.text)
		}
	}
	return texts
}

// Each command of the README runs as it is written, on a Debian with systemd, cgroup v2
// and an NVMe disk, and does what the README says of it. Only the disk has another name.
func TestGuestQuickstartOfTheReadme(t *testing.T) {
	vmtest.Long(t)
	needs.Tool(t, "make")
	commands := readmeCommands(t, "README.md")
	bin := t.TempDir()
	build := (&quickstart{T: t, commands: commands, used: map[string]bool{}}).command("make build")
	build, _, _ = strings.Cut(build, "#")
	if out, err := exec.Command("sh", "-c", "cd "+sourceTree+" && "+build+" BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", build, err, out)
	}
	for _, kernel := range vmtest.OneKernel(t) {
		t.Run("kernel-"+kernel, func(t *testing.T) {
			vmtest.NeedRoot(t, true)
			m := vmtest.Boot(t, vm.Config{
				Kernel: kernel, Systemd: true, Engines: true, MemoryBytes: 2 << 30,
				Disks: []vm.Disk{{SizeBytes: 24 << 30, NVMe: true}}, // a volume of 20G has room
				Give: []vm.Give{
					{Host: filepath.Join(bin, "daybook"), Guest: "/root/bin/daybook"},
					{Host: filepath.Join(sourceTree, "deploy/systemd"), Guest: "/root/deploy/systemd"},
				},
			})
			q := &quickstart{T: t, m: m, commands: commands, used: map[string]bool{}}
			q.command("make build")
			part := func(name string, body func()) {
				t.Run(name, func(t *testing.T) {
					defer func(outer *testing.T) { q.T = outer }(q.T)
					q.T = t
					body()
				})
			}
			q.sh(quickstartHost)
			q.sh(`docker import -c 'CMD ["/bin/mariadbd"]' mariadb.tar mariadb`)
			part("install", q.install)
			q.sh(`for name in web-1 db1; do mkdir /srv/data/$name; docker run -d --name $name --network none -e MARIADB_RANDOM_ROOT_PASSWORD=1 -v /srv/data/$name:/var/lib/mysql mariadb; done`)
			part("top", q.top)
			part("control", q.control)
			q.sh(`docker rm -f web-1 db1`)
			part("volume", q.volume)
			part("restart", q.restart)
			for _, text := range q.unused() {
				t.Errorf("the README has a command that this test does not run: %s", text)
			}
			q.noJournalErrors()
		})
	}
}

// noJournalErrors checks the systemd journal since the boot, or since the last call.
func (q *quickstart) noJournalErrors() {
	q.Helper()
	found, err := q.m.JournalErrors(q.Context())
	if err != nil || len(found) > 0 {
		q.Errorf("the systemd journal has errors: %v\n%s", err, strings.Join(found, "\n"))
	}
}

// install: the program is there, and reports what works.
func (q *quickstart) install() {
	q.Helper()
	q.sh(q.command("sudo install bin/daybook /usr/bin/"))
	report := q.sh(q.command("sudo daybook doctor"))
	for _, want := range []string{"cgroup v2", "docker 20.10", "cgroup driver systemd", "containerd", "podman", "systemd owns the units' cgroups and sets their weights"} {
		if !strings.Contains(report, want) {
			q.Errorf("doctor does not say %q:\n%s", want, report)
		}
	}
}

// sampled finds a container in the JSON of top.
func (q *quickstart) sampled(text, name string) account.Container {
	q.Helper()
	var sample account.Sample
	if err := json.Unmarshal([]byte(text), &sample); err != nil {
		q.Fatalf("%v: %s", err, text)
	}
	var all []string
	for _, device := range sample.Devices {
		for _, c := range device.Containers {
			if c.Name == name && device.Device == quickstartDisk {
				return c
			}
			all = append(all, device.Device+" "+c.Name)
		}
	}
	q.Errorf("top has no container %s on %s; it has %q", name, quickstartDisk, all)
	return account.Container{}
}

// top: one line is one container on one disk, with its journal bytes.
func (q *quickstart) top() {
	q.Helper()
	command, _, _ := strings.Cut(q.command("sudo daybook top"), "#")
	// In a terminal of its own; q is pressed once it shows the container.
	screen := q.sh(`mkfifo keys
(exec 3>keys; for i in $(seq 120); do grep -q web-1 screen && break; sleep 1; done; printf q >&3) &
TERM=xterm timeout 180 script -qefc 'stty rows 40 cols 160; ` + command + `' screen <keys >/dev/null && cat screen`)
	if !strings.Contains(screen, "web-1") || !strings.Contains(screen, quickstartDisk) {
		q.Errorf("the full screen shows web-1 and the disk not:\n%q", screen)
	}
	sample := q.sh(q.command("sudo daybook top --once"))
	for _, name := range []string{"web-1", "db1"} {
		c := q.sampled(sample, name)
		if c.Runtime != "docker" || c.JournalBytes == 0 || !strings.HasPrefix(c.Cgroup, "/system.slice/docker-") {
			q.Errorf("%s: %+v", name, c)
		}
	}
	said := q.sh(q.command("sudo daybook blame;"))
	if !strings.Contains(said, "web-1") || !strings.Contains(said, "fsync") {
		q.Errorf("blame does not name web-1 and its fsync:\n%s", said)
	}
}

// scope returns the name of a Docker container's cgroup.
func (q *quickstart) scope(name string) string {
	q.Helper()
	return "docker-" + q.sh("docker inspect -f '{{.Id}}' "+name) + ".scope"
}

// control: weights become those of the configuration, and are as before afterwards.
func (q *quickstart) control() {
	q.Helper()
	scheduler, yaml := readmeControl(q.T)
	q.sh(localDisk(scheduler))
	q.sh("mkdir -p /etc/daybook && cat >/etc/daybook/control.yaml <<'END'\n" + localDisk(yaml) + "END")
	web, other := q.scope("web-1"), q.scope("db1")
	// settings are the kernel's weights of both on the disk, and the settings of its queue.
	settings := func() string {
		q.Helper()
		out, err := q.m.Run(q.Context(), "sh", "-c", `cd /sys/fs/cgroup/system.slice && grep -H . "$0"/io.bfq.weight "$1"/io.bfq.weight; cd /sys/block/`+quickstartDisk+`/queue && grep -H . scheduler nr_requests iosched/*`, web, other)
		if err != nil {
			q.Fatal(err)
		}
		return out
	}
	before := settings()

	dry := q.start(q.command("sudo daybook control --config /etc/daybook/control.yaml --dry-run"))
	q.until("the dry run prints changes", dry, func() bool {
		return strings.Contains(dry.out.String(), web) && strings.Contains(dry.out.String(), other)
	})
	q.interrupt(dry)
	q.Logf("the dry run: %s", dry.out)
	if after := settings(); after != before {
		q.Errorf("the dry run changed weights:\n%s\nbefore:\n%s", after, before)
	}

	controlled := func() runningCommand {
		r := q.start(q.command("sudo daybook control --config /etc/daybook/control.yaml"))
		q.until("control sets the weights", r, func() bool {
			now := settings()
			low, high := weightOn(now, web), weightOn(now, other)
			return low > 0 && high > 2*low
		})
		return r
	}
	r := controlled()
	q.sh(`kill -9 $(pidof daybook)`)
	_ = r.Wait(q.Context()) // it was killed
	if settings() == before {
		q.Error("nothing is left to restore after the kill")
	}
	q.sh(q.command("sudo daybook restore"))
	if after := settings(); after != before {
		q.Errorf("after a kill and restore:\n%s\nbefore:\n%s", after, before)
	}
	q.interrupt(controlled())
	if after := settings(); after != before {
		q.Errorf("after Ctrl-C:\n%s\nbefore:\n%s", after, before)
	}
}

// weightOn returns the weight of a cgroup on the disk in the text of io.bfq.weight, its
// default weight if it has none there, and 0 without either.
func weightOn(settings, scope string) (weight uint64) {
	for line := range strings.Lines(settings) {
		fields := strings.Fields(strings.TrimPrefix(line, scope+"/io.bfq.weight:"))
		if !strings.HasPrefix(line, scope) || len(fields) != 2 {
			continue
		}
		value, err := strconv.ParseUint(fields[1], 10, 64)
		if err == nil && (fields[0] != "default" || weight == 0) {
			weight = value
		}
	}
	return weight
}

// volume: the container and its journal are in the volume's slice, under its weight; the
// README's docker run, and what docs/docker.md and docs/volumes.md say for the others.
func (q *quickstart) volume() {
	q.Helper()
	q.sh(q.command("sudo daybook volume create db1"))
	q.sh(q.command("sudo daybook volume attach db1"))
	docker := q.command("docker run")
	q.inVolume("docker", "docker-*.scope", docker)
	q.sh(`docker rm -f $(docker ps -q)`)

	// Without a network, for which Podman's own package lacks parts in this guest.
	podman := strings.Replace(docker, "docker run", "podman run --network none", 1)
	q.sh(`podman import --change 'CMD ["/bin/mariadbd"]' mariadb.tar mariadb`)
	q.inVolume("podman", "libpod-[0-9a-f][0-9a-f][0-9a-f]*.scope", podman)
	q.sh("podman rm --force --all --time 0")

	// ctr takes images of an archive with a manifest.
	q.sh("docker save -o saved.tar mariadb && ctr image import saved.tar")
	containerd := documentedCell(q.T, "docs/docker.md", "containerd")
	containerd = strings.Replace(containerd, ":ID", ":db1c", 1) +
		" --detach --env MARIADB_RANDOM_ROOT_PASSWORD=1 --mount type=bind,src=/srv/db1,dst=/var/lib/mysql,options=rbind:rw docker.io/library/mariadb:latest db1c"
	q.inVolume("containerd", "ctr-db1c.scope", containerd)
	q.sh("ctr task kill --signal SIGKILL db1c")
	q.await("ctr container rm db1c")

	q.service()
}

// restart: a persistent volume is there after a power cut, before the engine starts its
// container again; and the disk has its scheduler again.
func (q *quickstart) restart() {
	q.Helper()
	docker := strings.Replace(q.command("docker run"), "docker run", "docker run --restart always", 1)
	for _, c := range []struct{ page, start string }{
		{"docs/install.md", "sudo install -m 644"}, {"docs/install.md", "sudo systemctl daemon-reload"},
		{"docs/volumes.md", "sudo systemctl enable daybook-attach"},
		{"docs/doctor.md", "echo 'ACTION=="}, {"docs/doctor.md", "sudo udevadm control"},
	} {
		found := slices.DeleteFunc(readmeCommands(q.T, c.page), func(r readmeCommand) bool { return !strings.HasPrefix(r.text, c.start) })
		if len(found) == 0 {
			q.Fatalf("%s has no command that begins with %q", c.page, c.start)
		}
		q.sh(localDisk(found[0].text))
	}
	q.sh(docker)
	q.await("ls -d /srv/db1/table*")
	q.sh("touch /srv/db1/kept && sync")
	q.noJournalErrors() // of this boot
	if err := q.m.Reboot(q.Context()); err != nil {
		q.Fatal(err)
	}
	if scheduler := q.sh("cat /sys/block/" + quickstartDisk + "/queue/scheduler"); !strings.Contains(scheduler, "[bfq]") {
		q.Errorf("after the restart the scheduler is %s", scheduler)
	}
	q.inVolume("docker", "docker-*.scope", "docker ps")
	// What was written before the power cut is in the volume, and the container goes on.
	q.sh("ls /srv/db1/kept")
	newest := "$(ls -d /srv/db1/table* | tail -n 1)"
	q.await(`[ "` + newest + `" != "` + q.sh("echo "+newest) + `" ]`)
}

// documentedCell returns the first command in the row of a page's table that begins so.
func documentedCell(t *testing.T, path, row string) string {
	t.Helper()
	for _, line := range readPage(t, path).lines {
		if m := regexp.MustCompile("^\\| " + row + " \\| `([^`]*)`").FindStringSubmatch(line.text); m != nil {
			return m[1]
		}
	}
	t.Fatalf("%s has no row %q", path, row)
	return ""
}

// service: a unit with the drop-in of docs/volumes.md.
func (q *quickstart) service() {
	q.Helper()
	var dropIn, commands []string
	ini := false
	page := readPage(q.T, "docs/volumes.md")
	for _, line := range page.lines {
		switch {
		case line.text == "```ini":
			ini = true
		case strings.HasPrefix(line.text, "```"):
			ini = false
		case ini:
			dropIn = append(dropIn, line.text)
		}
	}
	for _, c := range readmeCommands(q.T, page.path) {
		if c.section == "For a service of systemd" {
			commands = append(commands, c.text)
		}
	}
	if len(dropIn) == 0 || len(commands) == 0 {
		q.Fatalf("docs/volumes.md has the drop-in %q and the commands %q", dropIn, commands)
	}
	q.sh("mkdir -p /etc/systemd/system/mariadb.service.d && cat >/etc/systemd/system/mariadb.service <<'END'\n[Service]\nEnvironment=MARIADB_RANDOM_ROOT_PASSWORD=1\n" +
		"RootDirectory=/root/image\nMountAPIVFS=yes\nBindPaths=/srv/db1:/var/lib/mysql\nExecStart=/bin/mariadbd\nEND\n" +
		"cat >/etc/systemd/system/mariadb.service.d/daybook.conf <<'END'\n" + strings.Join(dropIn, "\n") + "\nEND")
	q.inVolume("systemd", "mariadb.service", strings.Join(commands, "\n"))
	q.sh("systemctl stop mariadb")
}

// inVolume starts a container by the command and checks its place; scope is a pattern of
// the name of its cgroup.
func (q *quickstart) inVolume(runtime, scope, command string) {
	q.Helper()
	q.sh(command)
	const slice = "/sys/fs/cgroup/daybook.slice/daybook-db1.slice"
	q.await("ls -d " + slice + "/" + scope)
	at := q.sh("ls -d " + slice + "/" + scope)
	if fs := strings.Fields(q.sh("findmnt -no FSTYPE,SOURCE /srv/db1")); len(fs) != 2 || fs[0] != "ext4" || !strings.HasPrefix(fs[1], "/dev/vg0/") {
		q.Errorf("%s: /srv/db1 is %q", runtime, fs)
	}
	if pids := q.sh("find " + at + " -name cgroup.procs | xargs cat"); pids == "" {
		q.Errorf("%s: no process in %s", runtime, at)
	}
	if threads := q.sh(`for p in $(cat ` + slice + `/daybook-db1-journal.slice/cgroup.procs); do cat /proc/$p/comm; done`); !strings.HasPrefix(threads, "jbd2/dm-") {
		q.Errorf("%s: the slice of the journal has %q", runtime, threads)
	}
	var volume struct {
		Weight uint64 `json:"weight_in_force"`
	}
	if text := q.sh("daybook volume inspect db1 --json"); json.Unmarshal([]byte(text), &volume) != nil || volume.Weight != 700 {
		q.Errorf("%s: the volume is %s", runtime, text)
	}
	if weight := q.sh("grep -h . " + slice + "/io.bfq.weight"); !strings.Contains(weight, " 700") {
		q.Errorf("%s: BFQ's weight of the slice is %q", runtime, weight)
	}
	sample := q.sh(q.command("sudo daybook top --once"))
	var seen account.Sample
	if err := json.Unmarshal([]byte(sample), &seen); err != nil {
		q.Fatal(err)
	}
	want := strings.TrimPrefix(at, "/sys/fs/cgroup")
	for _, device := range seen.Devices {
		for _, c := range device.Containers {
			if c.Cgroup == want {
				q.Logf("%+v", c)
				if c.Runtime != runtime || c.JournalBytes == 0 {
					q.Errorf("top of %s: %+v", runtime, c)
				}
				return
			}
		}
	}
	q.Errorf("top has no %s: %s", want, sample)
}
