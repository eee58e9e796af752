package disksim

import (
	"errors"
	"log"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	rootNode = fuse.FUSE_ROOT_ID
	diskNode = rootNode + 1

	// maxTransferBytes is the largest request; larger ones arrive in parts.
	maxTransferBytes = 1 << 20
	// queueDepth limits the requests in flight; it is that of a loop device.
	queueDepth = 128
	// mountType and mountSource are how the kernel lists the mount of a disk.
	mountName   = "daybook"
	mountType   = "fuse." + mountName
	mountSource = "daybook-disk"
	// attributeTime is how long the kernel may cache the attributes, which
	// never change.
	attributeTime = 24 * time.Hour
)

// file is a FUSE file system with one file: the disk. It uses the raw protocol,
// because the arm needs the order in which the kernel queued its requests, and
// no other function of a file system is needed.
type file struct {
	fuse.RawFileSystem
	name      string
	sizeBytes uint64
	store     *store
	arm       *arm
}

func newFile(name string, model Model, store *store) *file {
	return &file{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		name:          name,
		sizeBytes:     model.SizeBytes,
		store:         store,
		arm:           newArm(model),
	}
}

// mount mounts the file system; the caller runs Serve.
func (f *file) mount(directory string, logger *log.Logger) (*fuse.Server, error) {
	return fuse.NewServer(f, directory, &fuse.MountOptions{
		Name:          mountName,
		FsName:        mountSource,
		MaxWrite:      maxTransferBytes,
		MaxBackground: queueDepth,
		// Without it the kernel would send one request at a time.
		ExtraCapabilities: fuse.CAP_ASYNC_DIO,
		DisableXAttrs:     true,
		// Root needs no helper program.
		DirectMountStrict: true,
		// A pipe is too small for the largest requests, and a copy from the
		// page cache is cheap compared to three more system calls.
		DisableSplice: true,
		Logger:        logger,
	})
}

func (f *file) String() string { return mountSource }

func (f *file) attributes(node uint64, out *fuse.Attr) fuse.Status {
	switch node {
	case rootNode:
		out.Mode, out.Nlink = syscall.S_IFDIR|0o700, 2
	case diskNode:
		out.Mode, out.Nlink = syscall.S_IFREG|0o600, 1
		out.Size, out.Blocks = f.sizeBytes, f.store.usedBytes()/512
	default:
		return fuse.ENOENT
	}
	out.Ino, out.Blksize = node, 4096
	return fuse.OK
}

func (f *file) Lookup(_ <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if header.NodeId != rootNode || name != f.name {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation = diskNode, 1
	out.SetEntryTimeout(attributeTime)
	out.SetAttrTimeout(attributeTime)
	return f.attributes(diskNode, &out.Attr)
}

func (f *file) GetAttr(_ <-chan struct{}, input *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(attributeTime)
	return f.attributes(input.NodeId, &out.Attr)
}

func (f *file) Open(_ <-chan struct{}, input *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if input.NodeId != diskNode {
		return fuse.ENOENT
	}
	// Use no page cache, and no lock for concurrent writes.
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	return fuse.OK
}

func (f *file) Read(_ <-chan struct{}, input *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	length, status := f.inside(input.Offset, uint64(input.Size))
	if status != fuse.OK {
		return nil, status
	}
	done := f.arm.submit(input.Unique, Read, input.Offset, length)
	n, err := f.store.file.ReadAt(buffer[:length], int64(input.Offset))
	<-done
	if err != nil {
		return nil, statusOf(err)
	}
	return fuse.ReadResultData(buffer[:n]), fuse.OK
}

func (f *file) Write(_ <-chan struct{}, input *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	length, status := f.inside(input.Offset, uint64(len(data)))
	if status != fuse.OK {
		return 0, status
	}
	if length != uint64(len(data)) {
		return 0, fuse.Status(syscall.ENOSPC)
	}
	done := f.arm.submit(input.Unique, Write, input.Offset, length)
	n, err := f.store.file.WriteAt(data, int64(input.Offset))
	<-done
	if err != nil {
		return 0, statusOf(err)
	}
	return uint32(n), fuse.OK
}

// inside truncates a request at the end of the disk.
func (f *file) inside(offset, length uint64) (uint64, fuse.Status) {
	if offset > f.sizeBytes {
		return 0, fuse.EINVAL
	}
	return min(length, f.sizeBytes-offset), fuse.OK
}

// Fsync is the disk's cache flush. The data need not be durable: flushing the
// host's disk would add its times to the model's.
func (f *file) Fsync(_ <-chan struct{}, input *fuse.FsyncIn) fuse.Status {
	<-f.arm.submit(input.Unique, Flush, 0, 0)
	return fuse.OK
}

// Flush is close(2).
func (f *file) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

const (
	fallocateKeepSize  = 0x01
	fallocatePunchHole = 0x02
	fallocateZeroRange = 0x10
)

// Fallocate is called when a loop device discards or writes zeros.
func (f *file) Fallocate(_ <-chan struct{}, input *fuse.FallocateIn) fuse.Status {
	if input.Mode&^fallocateKeepSize != fallocatePunchHole && input.Mode&^fallocateKeepSize != fallocateZeroRange {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	length, status := f.inside(input.Offset, input.Length)
	if status != fuse.OK || length == 0 {
		return status
	}
	done := f.arm.submit(input.Unique, Discard, input.Offset, length)
	err := f.store.zero(input.Offset, length)
	<-done
	return statusOf(err)
}

func (f *file) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize = 4096, 4096
	out.Blocks = f.sizeBytes / 4096
	out.Bfree = out.Blocks - min(out.Blocks, f.store.usedBytes()/4096)
	out.Bavail = out.Bfree
	return fuse.OK
}

func (f *file) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (f *file) ReadDir(_ <-chan struct{}, input *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if input.Offset == 0 {
		out.AddDirEntry(fuse.DirEntry{Name: f.name, Ino: diskNode, Mode: syscall.S_IFREG})
	}
	return fuse.OK
}

// statusOf converts an error to a reply: its number, or EIO.
func statusOf(err error) fuse.Status {
	if err == nil {
		return fuse.OK
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return fuse.Status(errno)
	}
	return fuse.EIO
}
