package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/daybook-project/daybook/internal/ext4"
	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/needs"
)

// The pages of encrypted data are in no page cache, like those of a journal. jbd2 writes the data of
// a file before the commit that has its blocks. The reference is the counter of a journal's own
// device. As where devices lie on each other, bios are noted when they are submitted.
func TestEncryptedDataThatJbd2WritesIsNotTheJournals(t *testing.T) {
	needEncryption(t)
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) bool { return countsNoData(t, load, false) })
		})
	}
}

// A layer submits clones of such data to the layer below it, with another function that ends them,
// and nothing is noted of them. Bios for a partition stand for clones here, because they have a flag
// that those for a whole disk do not have.
func TestClonesOfEncryptedDataThatJbd2WritesAreNotTheJournals(t *testing.T) {
	needEncryption(t)
	for name, load := range compilations {
		t.Run(name, func(t *testing.T) {
			ext4test.Compare(t, func(t *testing.T) bool { return countsNoData(t, load, true) })
		})
	}
}

func needEncryption(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/sys/fs/ext4/features/test_dummy_encryption_v2")
	needs.That(t, err == nil, "a kernel whose ext4 encrypts, with its key for tests")
}

func countsNoData(t *testing.T, load func() (*ebpf.CollectionSpec, error), cloned bool) (void bool) {
	t.Helper()
	// Without delayed allocation a write has its blocks before it is written back.
	const mount = "nodelalloc,test_dummy_encryption"
	options := ext4.MakeOptions{Arguments: []string{"-O", "encrypt"}}
	fs := ext4test.New(t, ext4test.Options{ExternalJournal: true, Mount: mount, Make: options})
	dir, dev := fs.Dir, fs.Dev()
	if cloned {
		options.BlockSizeBytes, options.JournalDevice = 4096, fs.Journal.Node()
		dir, dev = onPartition(t, fs, 1, options, ext4.MountOptions{Data: mount, JournalDevice: fs.Journal.Node()})
	}
	syncFS(t, dir)
	p, err := open(load)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.mu.Lock()
	err = errors.Join(p.attachSubmissions(), p.objects.CommitEnds.Set(uint64(0)))
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if cloned {
		types, err := os.ReadFile(kernelTypes)
		if err != nil {
			t.Fatal(err)
		}
		flag, known := enumValue(types, "BIO_REMAPPED")
		needs.That(t, known, "a kernel with a flag of bios for partitions")
		if err := errors.Join(p.objects.Cloned.Set(uint32(1)<<flag), p.objects.FileEnds.Set(uint64(0))); err != nil {
			t.Fatal(err)
		}
	}
	synced, err := os.Create(filepath.Join(dir, "synced"))
	if err != nil {
		t.Fatal(err)
	}
	defer synced.Close()
	collect(t, p)
	seen := ext4test.NewSeenWrites(t, fs.Journal)
	before, data := stat(t, fs.Journal), stat(t, fs.Disk)
	const bytes = 1 << 20
	err = errors.Join(os.WriteFile(filepath.Join(dir, "data"), make([]byte, bytes), 0o600), synced.Chmod(0o640), synced.Sync())
	if err != nil {
		t.Fatal(err)
	}
	after := stat(t, fs.Journal)
	if written := stat(t, fs.Disk).WriteBytes - data.WriteBytes; written < bytes {
		t.Fatalf("%d bytes were written before the commit: the test shows nothing", written)
	}
	var counted uint64
	for _, c := range collect(t, p).Commits {
		if c.Dev == dev {
			counted += c.JournalBytes
		}
	}
	if seen.Missed(t) != 0 {
		return true
	}
	if truth := after.WriteBytes - before.WriteBytes; counted != truth {
		t.Errorf("%d bytes counted, the journal's device wrote %d", counted, truth)
	}
	return false
}
