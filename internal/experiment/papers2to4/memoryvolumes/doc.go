// Package memoryvolumes is the experiment that no paper has: a container whose file system
// has its journal in memory, next to neighbours that write.
package memoryvolumes
