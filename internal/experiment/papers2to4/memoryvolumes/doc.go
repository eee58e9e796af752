// Package memoryvolumes measures the syncs of a container whose file system has its journal
// in memory, next to neighbours that write. It combines papers 2 to 4; none of them has it.
package memoryvolumes
