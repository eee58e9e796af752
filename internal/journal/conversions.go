package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/daybook-project/daybook/internal/spare"
)

// conversions are the functions of the kernel that convert the extents of an inode, in a
// kernel thread, when its data was written: of buffered and of direct writes.
var conversions = []string{"ext4_end_io_rsv_work", "iomap_dio_complete_work"}

// Attachable returns the programs of a collection, which include bpf/conversions.h, that are
// to be attached. It sets in them how to find the inode that a kernel thread works on. If
// that is not known, each conversion is observed instead.
func Attachable(collection *ebpf.Collection, cache *btf.Cache) (map[string]spare.Program, error) {
	known, err := setConversions(collection, cache)
	if err != nil {
		return nil, err
	}
	programs := spare.Of(collection)
	if known {
		delete(programs, "work_conversion")
	}
	return programs, nil
}

// setConversions sets in programs how to find that inode. known is false if the kernel does
// not show it.
func setConversions(programs *ebpf.Collection, cache *btf.Cache) (known bool, err error) {
	addresses, _, err := kernelAddresses(conversions)
	if err != nil || addresses == nil {
		return false, err
	}
	inode, known, err := inodeOfWork(cache)
	if err != nil || !known {
		return false, err
	}
	v := programs.Variables
	if err := errors.Join(v["inode_of_work"].Set(inode), v["direct_work"].Set(addresses[1]), v["buffered_work"].Set(addresses[0])); err != nil {
		return false, fmt.Errorf("cannot give the BPF programs the kernel's functions: %w", err)
	}
	return true, nil
}

// inodeOfWork returns what to add to the address of a work that converts the extents of
// an inode of ext4 to get that of the inode.
func inodeOfWork(cache *btf.Cache) (add uint64, known bool, err error) {
	kernel, err := cache.Kernel()
	if err != nil {
		return 0, false, fmt.Errorf("%w: cannot read the kernel's BTF: %v", ErrUnsupported, err)
	}
	for _, needed := range []struct {
		structure string
		members   []string
	}{{"task_struct", []string{"worker_private"}}, {"kthread", []string{"data"}}, {"worker", []string{"current_work", "current_func"}}, {"iomap_dio", []string{"iocb"}}} {
		for _, member := range needed.members {
			if _, known := offsetOf(kernel, needed.structure, member); !known {
				return 0, false, nil
			}
		}
	}
	ext4 := kernel
	if _, err := os.Stat(filepath.Join(sysDirectory, "kernel/btf/ext4")); err == nil {
		if ext4, err = cache.Module("ext4"); err != nil {
			return 0, false, fmt.Errorf("%w: cannot read the BTF of ext4: %v", ErrUnsupported, err)
		}
	}
	inode, ok := offsetOf(ext4, "ext4_inode_info", "vfs_inode")
	work, also := offsetOf(ext4, "ext4_inode_info", "i_rsv_conversion_work")
	return inode - work, ok && also, nil
}

// offsetOf returns the offset of a member of a structure, modulo 2^64, in bytes.
func offsetOf(types *btf.Spec, structure, member string) (offset uint64, known bool) {
	var of *btf.Struct
	if err := types.TypeByName(structure, &of); err != nil {
		return 0, false
	}
	for _, m := range of.Members {
		if m.Name == member {
			return uint64(m.Offset.Bytes()), true
		}
	}
	return 0, false
}
