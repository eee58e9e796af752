package pair

// DataMode is how ext4 writes new data in its ordered journal mode.
type DataMode string

// The data modes of ext4, for new data that a program writes through the page cache.
const (
	// Ordered means that a transaction with new extents commits only after their data
	// is on the disk. The kernels of paper 2 did this; today the mount option
	// nodioread_nolock does.
	Ordered DataMode = "ordered"
	// Unwritten means that new extents are marked unwritten until their data is on
	// the disk, and enter a transaction only then: no commit waits for data. It is
	// the kernel's default since 5.6, at first only if blocks are as large as pages.
	Unwritten DataMode = "unwritten"
)

// DataModes lists all data modes.
func DataModes() []DataMode { return []DataMode{Ordered, Unwritten} }

// mountOption returns ext4's mount option for the mode.
func (m DataMode) mountOption() string {
	if m == Unwritten {
		return "dioread_nolock"
	}
	return "nodioread_nolock"
}
