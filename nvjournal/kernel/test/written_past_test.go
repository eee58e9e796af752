package test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/vm/vmtest"
)

// The tests below write blocks past the journal that were in it. Neither a checkpoint nor
// recovery may write older content over them.

// hasNumbers checks the file of fillWithFile, in its pages and on the disk.
func (v *volume) hasNumbers(name string, blocks int) {
	v.t.Helper()
	for _, from := range []string{"pages", "disk"} {
		file, err := os.Open(filepath.Join(v.dir, name))
		if err != nil {
			v.t.Fatal(err)
		}
		b := make([]byte, 4096)
		for n := range blocks {
			if _, err := io.ReadFull(file, b); err != nil || !bytes.Equal(b, numbered(n)) {
				v.t.Errorf("block %d of %d has other content by its %s, %.8q: %v", n, blocks, from, b, err)
				break
			}
		}
		_ = file.Close()
		dropCaches(v.t)
	}
}

// checked checks the content of files now, when all is at home, and after a crash.
func (v *volume) checked(models map[string][]byte) {
	v.t.Helper()
	crash := v.uncleanAsItIs()
	check := func(dir string) {
		v.t.Helper()
		for name, model := range models {
			content(v.t, filepath.Join(dir, name), model)
		}
	}
	v.carryHome()
	dropCaches(v.t)
	check(v.dir)
	v.unmount()
	crash.restore(v.t)
	v.mount()
	check(v.dir)
	v.end(check)
}

// quotaEntry returns where a file of quotas has a user's limits of inodes and blocks, -1 if nowhere.
func quotaEntry(file []byte, user, inodes, blocks uint32) int {
	var entry []byte // linux/fs/quota, quotaio_v2.h: the use of inodes is 0
	for _, word := range []uint32{user, inodes, 0, 0, blocks, 0} {
		entry = binary.LittleEndian.AppendUint32(entry, word)
	}
	return bytes.Index(file, entry)
}

// overwrite writes a file's content to the blocks that it has.
func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(content, 0)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// ext4 writes a file of quotas past its pages, through the journal. When quotas are off, it is
// a file like others: it has what ext4 wrote, can be changed, and its blocks can be reused.
func quotaFiles(t *testing.T, s system) {
	t.Run("turned off", func(t *testing.T) { quotaFilesTurnedOff(t, s) })
	t.Run("not turned on", func(t *testing.T) { quotaFilesNotTurnedOn(t, s) })
	if s.ours() {
		t.Run("not a file of quotas", func(t *testing.T) { notAQuotaFile(t, s) })
	}
}

// Quotas cannot be turned on, because the file has something else. A store to its mapping,
// at the time when the kernel would drop the pages of a file of quotas, stays.
func notAQuotaFile(t *testing.T, s system) {
	needsKprobes(t)
	p := smallPlan(s)
	p.options = []string{"usrjquota=aquota.user", "jqfmt=vfsv0"}
	v := s.make(t, p)
	path := filepath.Join(v.dir, "aquota.user")
	model := make([]byte, 4096)
	file := create(t, path)
	rewrite(t, file, model, 0, len(model))
	v.carryHome()
	mapped, err := unix.Mmap(int(file.Fd()), 0, len(model), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	begin := make(chan bool)
	quotas := onProcessor(t, 0, func() error {
		<-begin
		return v.tryQuotaOn()
	})
	release := heldBefore(t, quotas.number, "truncate_inode_pages")
	close(begin)
	if !await(func() bool { return hits(t) > 0 }) {
		t.Fatal("quotactl does not drop the file's pages")
	}
	// A read into the mapping, not an instruction: the Go runtime waits for a thread whose
	// instruction waits in the kernel.
	copy(model, "stored")
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(unix.Close(pipe[0]), unix.Close(pipe[1])) }()
	if _, err := unix.Write(pipe[1], model[:8]); err != nil {
		t.Fatal(err)
	}
	store := onProcessor(t, 0, func() error {
		_, err := unix.Read(pipe[0], mapped[:8])
		return err
	})
	if !await(func() bool { return len(store.ended) > 0 || isIn(t, store.number, "ext4_page_mkwrite") }) {
		t.Fatal("the store neither ends nor waits")
	}
	release()
	if err := <-quotas.ended; err == nil {
		t.Fatal("quotas are on, with a file of zeros")
	}
	if err := errors.Join(<-store.ended, unix.Munmap(mapped), file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
	content(t, path, model)
	v.carryHome()
	dropCaches(t)
	content(t, path, model)
	v.end(nil)
}

// Quotas are turned on while two users write to files. One gets an entry. The block with that of the
// other is damaged, so quotas are off again. The file has the entry, and can be repaired.
func quotaFilesNotTurnedOn(t *testing.T, s system) {
	p := smallPlan(s)
	p.options = []string{"usrjquota=aquota.user", "jqfmt=vfsv0"}
	v := s.make(t, p)
	v.quotaFile()
	v.quotactl(quotaOff, 0, nil)
	path := filepath.Join(v.dir, "aquota.user")
	const user, other = 1000, 1 << 24 // of the first block of the tree, and of another one
	const root, entry = 1024, 4
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(file[root+other>>24*entry:], 1<<30) // there is no such block
	overwrite(t, path, file)
	var files []*os.File
	for _, owner := range []int{other, user} { // the kernel begins with the last one
		files = append(files, create(t, filepath.Join(v.dir, fmt.Sprint(owner))))
		if err := files[len(files)-1].Chown(owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	v.carryHome()
	if err := v.tryQuotaOn(); err == nil {
		t.Fatal("quotas are on, and a block of the file is damaged")
	}
	for _, file := range files {
		_ = file.Close()
	}
	file, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if quotaEntry(file, user, 0, 0) < 0 {
		t.Errorf("%s of %d bytes has no entry of the first user", path, len(file))
	}
	clear(file[root+other>>24*entry:][:entry])
	overwrite(t, path, file)
	v.carryHome()
	dropCaches(t)
	content(t, path, file)
	v.end(nil)
}

func quotaFilesTurnedOff(t *testing.T, s system) {
	p := smallPlan(s)
	p.options = []string{"usrjquota=aquota.user", "jqfmt=vfsv0"}
	v := s.make(t, p)
	path := filepath.Join(v.dir, "aquota.user")
	const user, inodes, blocks, more = 1000, 12, 2048, 3072
	v.quotaFile()
	v.quotactl(setQuota, user, &quotaLimits{blocksHard: blocks, inodesHard: inodes, valid: limitsAreSet})
	v.quotactl(quotaOff, 0, nil)

	read, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := quotaEntry(read, user, inodes, blocks)
	if at < 0 {
		t.Fatalf("%s of %d bytes has no limits when quotas are off", path, len(read))
	}
	// As setquota does it without the kernel.
	binary.LittleEndian.PutUint32(read[at+16:], more)
	overwrite(t, path, read)
	v.carryHome()
	dropCaches(t)
	content(t, path, read)

	v.turnQuotaOn()
	var limits quotaLimits
	if v.quotactl(getQuota, user, &limits); limits.blocksHard != more {
		t.Errorf("the limit is %d, and %d was written to the file", limits.blocksHard, more)
	}
	v.quotactl(setQuota, user, &quotaLimits{blocksHard: blocks, inodesHard: inodes, valid: limitsAreSet})
	v.quotactl(quotaOff, 0, nil)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	v.carryHome()
	count := v.fillWithFile("data")
	v.carryHome()
	dropCaches(t)
	v.hasNumbers("data", count)
	v.end(nil)
}

// With clusters a truncated file keeps the rest of its last cluster, and gets the same blocks
// again.
func smallClusters(t *testing.T, s system) {
	p := smallPlan(s)
	p.features = []string{"-O", "bigalloc", "-C", "65536"}
	v := s.make(t, p)
	models := map[string][]byte{}
	for name, change := range map[string]func(file *os.File) error{
		"grown": func(file *os.File) error { return nil },
		"allocated": func(file *os.File) error {
			return unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 4096, 60<<10)
		},
		"punched": func(file *os.File) error {
			if err := file.Truncate(64 << 10); err != nil {
				return err
			}
			return unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 4096, 40<<10)
		},
	} {
		file, model := create(t, filepath.Join(v.dir, name)), make([]byte, 104<<10)
		rewrite(t, file, model, 0, 64<<10)
		if err := errors.Join(file.Truncate(4096), change(file)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rewrite(t, file, model, 4096, 100<<10)
		models[name] = model
		_ = file.Close()
	}
	// ext4 writes zeros to the rest of an allocated range of which a block is written.
	file, model := create(t, filepath.Join(v.dir, "zeroed")), make([]byte, 64<<10)
	rewrite(t, file, model, 0, len(model))
	clear(model[4096:])
	if err := errors.Join(file.Truncate(4096), unix.Fallocate(int(file.Fd()), 0, 4096, 60<<10)); err != nil {
		t.Fatal(err)
	}
	rewrite(t, file, model, 5*4096, 4096)
	models["zeroed"] = model
	_ = file.Close()
	v.checked(models)
}

// verityOn is fsverity_enable_arg of linux/fsverity.h.
type verityOn struct {
	version, hash, block, saltSize uint32
	salt                           uint64
	signatureSize, _               uint32
	signature                      uint64
	_                              [11]uint64
}

// The file's tree of hashes, beyond its size, is journaled like its data until its inode is
// read again. That happens as soon as it is closed, once its attribute x was changed.
func smallVerity(t *testing.T, s system) {
	p := smallPlan(s)
	p.features = []string{"-O", "verity"}
	v := s.make(t, p)
	path := filepath.Join(v.dir, "verity")
	_ = create(t, path).Close()
	must(t, "chattr", "+x", path)
	dropCaches(t)
	// With +x a file leaves the journal. Read again, it is journaled, as this is no disk for DAX.
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "chattr", "-x", path)
	model := make([]byte, 40<<10)
	before := v.statistics()["data_records"]
	rewrite(t, file, model, 0, len(model))
	if d := v.statistics()["data_records"] - before; d == 0 {
		t.Error("the file is not journaled before fs-verity is enabled")
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	file = readOnly
	const enable, sha256 = 0x40806685, 1 // FS_IOC_ENABLE_VERITY
	on := verityOn{version: 1, hash: sha256, block: 4096}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), enable, uintptr(unsafe.Pointer(&on))); errno != 0 {
		t.Fatalf("FS_IOC_ENABLE_VERITY: %v", errno)
	}
	_ = file.Close()
	dropCaches(t)
	content(t, path, model)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := v.syncDirectory(); err != nil {
		t.Fatal(err)
	}
	blocks := v.fillWithFile("data")
	crash := v.uncleanAsItIs()
	v.carryHome()
	dropCaches(t)
	v.hasNumbers("data", blocks)
	v.unmount()
	crash.restore(t)
	v.mount()
	v.hasNumbers("data", blocks)
	v.end(nil)
}

// A file gets the attribute x, and is written by DAX once it is opened again. It cannot get the
// attribute j with it.
func smallDAX(t *testing.T, s system) {
	disk := vmtest.Device(t, "pmem1")
	vmtest.WithPages(t, disk)
	p := smallPlan(s)
	p.disk, p.options = disk, []string{"dax=inode"}
	v := s.make(t, p)
	path := filepath.Join(v.dir, "dax")
	file, model := create(t, path), make([]byte, 40<<10)
	rewrite(t, file, model, 0, len(model))
	if out, err := run("chattr", "+jx", path); err == nil || !strings.Contains(out, "not supported") {
		t.Errorf("chattr +jx: %v: %s", err, out)
	}
	rewrite(t, file, model, 0, len(model))
	must(t, "chattr", "+x", path)
	_ = file.Close()
	dropCaches(t)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const attributeDAX = 0x200000 // STATX_ATTR_DAX
	var status unix.Statx_t
	if err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, 0, &status); err != nil || status.Attributes&attributeDAX == 0 {
		t.Fatalf("it is no file for DAX: attributes %#x, %v", status.Attributes, err)
	}
	rewrite(t, file, model, 100, 30<<10)
	_ = file.Close()
	v.checked(map[string][]byte{"dax": model})
}
