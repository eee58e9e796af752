package doctor

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// stacks are file systems on LVM (linear, striped, thin), dm-crypt and md raid1, and on
// an NVMe disk.
const stacks = `set -e
mke2fs -q -t ext4 -O ^has_journal /dev/nvme0n1
pvcreate -qq /dev/vda /dev/vdb; vgcreate -qq vg0 /dev/vda /dev/vdb
lvcreate -qq -y -n linear -L 40M vg0 /dev/vda
lvcreate -qq -y -n striped -i 2 -L 40M vg0
lvcreate -qq -y --type thin-pool -n pool -L 64M vg0 /dev/vdb
lvcreate -qq -y -n thin -V 60M --thinpool pool vg0
mdadm --create /dev/md0 -q --run --level=1 --raid-devices=2 --metadata=1.2 /dev/vdc /dev/vdd
printf secret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 /dev/vg0/thin -
printf secret | cryptsetup open --key-file - /dev/vg0/thin plain
for device in vg0/linear vg0/striped md0 mapper/plain; do mke2fs -q -t ext4 /dev/$device; done
for at in nvme0n1 vg0/linear vg0/striped md0 mapper/plain; do mkdir -p /srv/$at; mount /dev/$at /srv/$at; done`

// A real Debian with systemd, NVMe, LVM, dm-crypt and md.
func TestGuestDoctorSeesTheStorageStacksOfDebian(t *testing.T) {
	vmtest.Long(t)
	vmtest.Systemd(t, vmtest.Config{Disks: []string{"256M,nvme", "256M", "256M", "256M", "256M"}, OneKernel: true}, func(t *testing.T) {
		if out, err := exec.Command("sh", "-c", stacks).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		facts, err := Collect(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := Diagnose(facts)
		if err := r.Write(os.Stderr); err != nil {
			t.Error(err)
		}
		var got []string
		for _, f := range r.Findings {
			if f.Severity != OK {
				got = append(got, strings.TrimSpace(string(f.Severity)+" "+f.ID+" "+f.Subject))
			}
		}
		for _, want := range []string{
			"note weights nvme0n1", "note weights vda", "note weights vdb", "note weights vdc", "note weights vdd", "note no-journal /srv/nvme0n1",
			"note several-disks /srv/vg0/striped", "note several-disks /srv/md0", "note dm-crypt /srv/mapper/plain",
		} {
			if !slices.Contains(got, want) {
				t.Errorf("%q is not found: %q", want, got)
			}
		}
		if !facts.Systemd || facts.Cgroups.Version != "v2" || len(facts.Tools.VolumeGroups) != 1 || !slices.Equal(facts.Tools.VolumeGroups[0].Disks, []string{"vda", "vdb"}) {
			t.Errorf("%+v", facts)
		}
		for _, fs := range facts.Filesystems {
			if slices.Equal(fs.Mounts, []string{"/srv/mapper/plain"}) && (len(fs.Layers) < 2 || !strings.HasPrefix(fs.Layers[0], "crypt ") || !slices.Equal(fs.Disks, []string{"vdb"}) ||
				!strings.HasPrefix(fs.Thread, "jbd2/dm-") || fs.ThreadCgroup != "/") {
				t.Errorf("%+v", fs)
			}
		}
	})
}
