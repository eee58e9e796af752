package main

import (
	"encoding/json"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/advise"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/vm/vmtest"
)

// On the older kernels, each request of a slow disk takes 5 ms, and the host has
// persistent memory: advise recommends a journal there, and says where the time goes.
func TestGuestAdviseRecommendsAJournalInMemory(t *testing.T) {
	vmtest.InGuest(t, vmtest.Config{
		Disks: []string{"128M,iops=200"}, Pmem: []string{"16M"}, Modules: "ext4", Give: []string{"mke2fs", "dd"},
		OneKernel: true,
	}, func(t *testing.T) {
		node, dir := vmtest.Device(t, "disk0"), t.TempDir()
		disk, err := blockdev.Lookup(node)
		if err != nil {
			t.Fatal(err)
		}
		if err := ext4.Make(t.Context(), node, ext4.MakeOptions{Extended: []string{"lazy_journal_init=1"}}); err != nil {
			t.Fatal(err)
		}
		if err := ext4.Mount(node, dir, ext4.MountOptions{NoAtime: true}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		// One process, because an emulated processor starts few in a second.
		at := containerThatSyncs(t, dir, "advise", `exec dd if=/dev/zero of="$0/file" bs=4k count=8000 oflag=dsync`)
		out, err := execute(t, "advise", "--interval", "8s", "--device", disk.Name, "--container", at, "--json")
		if err != nil {
			t.Fatal(err)
		}
		var got adviseOutput
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Waiters) != 1 || got.Waiters[0].Calls < advise.MinCalls || len(got.Waiters[0].Remedies) != len(advise.Kinds()) {
			t.Fatalf("got %s", out)
		}
		one := got.Waiters[0]
		t.Logf("%d calls, %+v: %s", one.Calls, one.Now, one.Verdict)
		if one.Best != advise.MemoryJournal || one.Remedies[0].Kind != advise.MemoryJournal {
			t.Errorf("got %s", out)
		}
	})
}
