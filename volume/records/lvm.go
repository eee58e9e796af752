package records

import (
	"fmt"
	"strings"
)

// LogicalVolume is a logical volume of LVM with the blocks of a volume or snapshot.
type LogicalVolume struct {
	VolumeGroup string `json:"volume_group"`
	// Name contains the UUID of the volume or snapshot.
	Name string `json:"name"`
	// ThinPool is its thin pool in the volume group; "" if it is linear, with all its
	// blocks.
	ThinPool string `json:"thin_pool,omitempty"`
}

// NewLogicalVolume names the logical volume of the volume or snapshot with a UUID.
func NewLogicalVolume(group, pool, id string) *LogicalVolume {
	return &LogicalVolume{VolumeGroup: group, Name: "daybook-" + id, ThinPool: pool}
}

// String is its name as LVM's commands take it.
func (l LogicalVolume) String() string { return l.VolumeGroup + "/" + l.Name }

// Node is its block device.
func (l LogicalVolume) Node() string { return "/dev/" + l.String() }

// Check refuses names that LVM does not allow (lvm(8)).
func (l LogicalVolume) Check() error {
	names := []string{l.VolumeGroup, l.Name}
	if l.ThinPool != "" {
		names = append(names, l.ThinPool)
	}
	for _, name := range names {
		if err := checkLVMName(name); err != nil {
			return err
		}
	}
	return nil
}

// maxLVMNameBytes limits the name of a volume group and that of a logical volume.
const maxLVMNameBytes = 127

func checkLVMName(name string) error {
	valid := name != "" && len(name) <= maxLVMNameBytes && name != "." && name != ".." && name[0] != '-'
	for _, c := range []byte(name) {
		valid = valid && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("+_.-", c) >= 0)
	}
	if !valid {
		return fmt.Errorf("name %.40q in LVM", name)
	}
	return nil
}
