package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/vm"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// builtNVJournal is a file that make builds below nvjournal.
func builtNVJournal(t *testing.T, path, target string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(sourceTree, "nvjournal", path))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	needs.That(t, err == nil, path+", which make "+target+" builds")
	return path
}

// dockerMemoryHost makes an image. Its program makes files and syncs, and keeps in the file "synced" the
// number of the last that is synced.
const dockerMemoryHost = `set -e
modprobe bfq
echo bfq >/sys/block/$(basename "$(readlink -f "$(findmnt -no SOURCE /)")")/queue/scheduler
mkdir -p image/bin image/tmp
cp /bin/busybox image/bin
for name in sh mkdir dd rm mv sync sleep; do ln -s busybox image/bin/$name; done
cat >image/bin/work <<'END'
#!/bin/sh
cd /data || exit 1
n=0
[ ! -e synced ] || read n <synced
while n=$((n + 1)); do
	mkdir -p row$n && echo $n | dd of=row$n/value conv=fsync 2>/dev/null || exit 1
	echo $n | dd of=next conv=fsync 2>/dev/null && mv next synced || exit 1
	dd if=/dev/null of=synced conv=fsync,notrunc 2>/dev/null
	sleep 0.2
done
END
chmod +x image/bin/work
tar -C image -c . >image.tar
docker import -c 'CMD ["/bin/work"]' image.tar work
mkdir -p /etc/systemd/system/daybook-docker.service.d
printf '[Service]\nDeviceAllow=/dev/pmem0 rw\n' >/etc/systemd/system/daybook-docker.service.d/memory.conf
cp deploy/systemd/*.service deploy/systemd/*.socket /etc/systemd/system
systemctl daemon-reload
systemctl enable --now daybook-docker.socket
systemctl enable daybook-attach`

// Containers of Docker work in volumes whose journals are in slices of memory: one of the volume plugin,
// whose daemon is killed, and a persistent one. After a power cut, what they have synced is there, the
// persistent one is attached before Docker starts its container, and in the end all slices are free.
func TestGuestDockersVolumesWithTheirJournalsInMemory(t *testing.T) {
	vmtest.Long(t)
	needs.Tool(t, "make")
	bin := t.TempDir()
	if out, err := exec.Command("make", "-C", sourceTree, "build", "BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, kernel := range vmtest.Kernels(t) {
		t.Run("kernel-"+kernel, func(t *testing.T) {
			if !slices.Contains([]string{"6.1", "6.12"}, kernel) {
				t.Skip("ext4nvj.ko is not built for it")
			}
			vmtest.NeedRoot(t, true)
			m := vmtest.Boot(t, vm.Config{
				Kernel: kernel, Systemd: true, Engines: true, MemoryBytes: 2 << 30,
				Pmem:    []vm.Pmem{{SizeBytes: 64 << 20}},
				Modules: []string{builtNVJournal(t, filepath.Join("kernel/build", kernel, "ext4nvj.ko"), "kernel")},
				Give: []vm.Give{
					{Host: filepath.Join(bin, "daybook"), Guest: "/usr/bin/daybook"},
					{Host: filepath.Join(sourceTree, "deploy/systemd"), Guest: "/root/deploy/systemd"},
					{Host: builtNVJournal(t, "build/nvj", "nvjournal"), Guest: "/usr/bin/nvj"},
				},
			})
			q := &quickstart{T: t, m: m}
			q.sh(dockerMemoryHost)
			q.memoryVolumes()
			q.noJournalErrors()
		})
	}
}

func (q *quickstart) memoryVolumes() {
	q.Helper()
	const plugin, kept = "/run/daybook/volumes/web", "/srv/db"
	run := func(volume, source string) {
		q.Helper()
		q.sh("docker run -d --name " + volume + " --network none --restart always --cgroup-parent daybook-" + volume + ".slice -v " + source + ":/data work")
	}
	q.sh("docker volume create -d daybook -o size=64M -o weight=300 -o journal=memory:8M web")
	run("web", "web")
	q.sh("daybook volume create db --size 64M --weight 700 --journal memory:16M && daybook volume attach db --target " + kept + " --persist")
	run("db", kept)
	if at := q.sh("docker volume inspect -f '{{.Mountpoint}}' web"); at != plugin {
		q.Fatalf("the plugin's volume is at %q", at)
	}
	for name, place := range map[string]string{"web": plugin, "db": kept} {
		q.works(place)
		q.inMemory(name, place)
	}
	q.slices("2 slices of volumes, 39 of 64 MiB free", "web 8 MiB in use", "db 16 MiB in use")
	q.seenByTop("web", "db")

	// The plugin's daemon is killed, and its container, too: Docker starts that again.
	q.sh(`systemctl kill --signal KILL daybook-docker.service; kill -9 $(docker inspect -f '{{.State.Pid}}' web)`)
	q.works(plugin)
	if out, err := q.try("docker volume rm web"); err == nil {
		q.Errorf("a volume in use was removed: %s", out)
	}

	// What each has synced before the power cut; more may be synced.
	synced := map[string]string{"web": q.synced(plugin), "db": q.synced(kept)}
	q.noJournalErrors() // of this boot
	if err := q.m.Reboot(q.Context()); err != nil {
		q.Fatal(err)
	}
	q.sh("systemctl is-active daybook-attach")
	for name, place := range map[string]string{"web": plugin, "db": kept} {
		q.await("mountpoint -q " + place)
		q.inMemory(name, place)
		if value := q.sh(fmt.Sprintf("cat %s/row%s/value", place, synced[name])); value != synced[name] {
			q.Errorf("%s: the last file that was synced before the power cut holds %q, want %q", name, value, synced[name])
		}
		q.works(place)
	}
	q.seenByTop("web", "db")

	q.sh("docker rm -f web db && daybook volume detach db")
	q.await("! mountpoint -q " + plugin)
	for _, name := range []string{"web", "db"} {
		q.sh("daybook volume check " + name)
	}
	q.sh("daybook volume repair && docker volume rm web && daybook volume delete db")
	q.slices("0 slices of volumes, 63 of 64 MiB free")
	// The first MiB has the table of slices.
	q.sh("tail -c +1048577 /dev/pmem0 | cmp -n 66060288 - /dev/zero")
	if left := q.sh("daybook volume list --json; losetup --list --noheadings"); !strings.Contains(left, `"volumes": []`) || strings.Contains(left, "/dev/loop") {
		q.Errorf("something is left: %s", left)
	}
}

// works waits until the container in a volume has synced more.
func (q *quickstart) works(place string) {
	q.Helper()
	before, _ := q.try("cat " + place + "/synced")
	q.await(fmt.Sprintf(`now=$(cat %s/synced 2>/dev/null) && [ -n "$now" ] && [ "$now" != "%s" ]`, place, strings.TrimSpace(before)))
}

// synced is the number of the last file that the container in a volume has synced.
func (q *quickstart) synced(place string) string {
	q.Helper()
	return q.sh("for i in $(seq 3000); do n=$(cat " + place + "/synced 2>/dev/null) && [ -n \"$n\" ] && echo $n && exit; sleep 0.2; done; exit 1")
}

// await repeats a command until it succeeds.
func (q *quickstart) await(command string) {
	q.Helper()
	q.sh("for i in $(seq 3000); do " + command + " && exit; sleep 0.2; done; exit 1")
}

// inMemory: a volume is an ext4nvj, its threads are in its slice, and inspect shows its journal.
func (q *quickstart) inMemory(name, place string) {
	q.Helper()
	if kind := q.sh("findmnt -no FSTYPE " + place); kind != "ext4nvj" {
		q.Errorf("%s is %q", place, kind)
	}
	slice := "/sys/fs/cgroup/daybook.slice/daybook-" + name + ".slice"
	threads := q.sh(`for p in $(cat ` + slice + "/daybook-" + name + `-journal.slice/cgroup.procs); do cat /proc/$p/comm; done`)
	if !strings.HasPrefix(threads, "nvj/loop") {
		q.Errorf("%s: the slice of the journal has %q", name, threads)
	}
	q.await("grep -q . " + slice + "/docker-*.scope/cgroup.procs 2>/dev/null") // the container
	var volume struct {
		Memory *struct {
			Commits     uint64 `json:"commits"`
			RingLines   uint64 `json:"ring_lines"`
			LoggedBytes uint64 `json:"logged_bytes"`
		} `json:"memory_journal"`
		JournalMemory struct {
			Region string `json:"region"`
		} `json:"journal_memory"`
		Placed bool `json:"placed"`
	}
	text := q.sh("daybook volume inspect " + name + " --json")
	if err := json.Unmarshal([]byte(text), &volume); err != nil || volume.Memory == nil || volume.Memory.RingLines == 0 || volume.JournalMemory.Region != "/dev/pmem0" || !volume.Placed {
		q.Errorf("%s: %v: %s", name, err, text)
	}
}

// slices: doctor shows the slices of the region.
func (q *quickstart) slices(want ...string) {
	q.Helper()
	report, _ := q.try("daybook doctor") // something is missing in a guest
	for _, text := range want {
		if !strings.Contains(report, text) {
			q.Errorf("doctor does not say %q:\n%s", text, report)
		}
	}
}

// seenByTop: top shows what the containers log in memory, and nothing that they log on a disk.
func (q *quickstart) seenByTop(names ...string) {
	q.Helper()
	seen := map[string]account.Container{}
	for try := 0; try < 20 && len(seen) < len(names); try++ {
		var sample account.Sample
		text := q.sh("daybook top --once --json --interval 3s")
		if err := json.Unmarshal([]byte(text), &sample); err != nil {
			q.Fatalf("%v: %s", err, text)
		}
		for _, device := range sample.Devices {
			for _, c := range device.Containers {
				if slices.Contains(names, c.Name) && c.MemoryJournalBytes > 0 && c.ForcedCommits > 0 {
					seen[c.Name] = c
				}
			}
		}
	}
	for _, name := range names {
		if c := seen[name]; c.Runtime != "docker" || c.MemoryJournalHandles == 0 || c.JournalBytes > 0 || !strings.Contains(c.Cgroup, "/daybook-"+name+".slice/") {
			q.Errorf("top shows for %s: %+v", name, c)
		}
	}
}
