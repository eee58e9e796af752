// Package chunk has the unit in which images of volumes are copied, compared and
// sent, and what is known of a chunk: whether it is zero, and its sum.
package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"unsafe"
)

const (
	// Bytes is the length of a chunk; an image's last may be shorter.
	Bytes = 1 << 20
	// UnitBytes is what sizes of images and ranges of changes are multiples of.
	UnitBytes = 4096
)

// Sum is a chunk's SHA-256; the zero value is that of a chunk of zeros, whether
// or not it has blocks.
type Sum [sha256.Size]byte

// SumOf is the sum of a chunk.
func SumOf(chunk []byte) Sum {
	if IsZero(chunk) {
		return Sum{}
	}
	return sha256.Sum256(chunk)
}

// Zeros is a chunk of zeros.
var Zeros = Aligned(Bytes)

// Aligned gives memory that direct I/O takes: at a page's beginning.
func Aligned(length int) []byte {
	const page = 4096
	b := make([]byte, length+page)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1))
	return b[off : off+length : off+length]
}

// IsZero says whether all bytes are 0.
func IsZero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(Zeros))
		if !bytes.Equal(b[:n], Zeros[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// ImageSum is what an image of that size holds: the SHA-256 of its size in
// bytes (little endian) and of its chunks' sums.
func ImageSum(sizeBytes uint64, sums []Sum) Sum {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, sizeBytes)) // never fails
	for i := range sums {
		_, _ = h.Write(sums[i][:])
	}
	return Sum(h.Sum(nil))
}

// Count is how many chunks an image of that size has.
func Count(sizeBytes uint64) int { return int((sizeBytes + Bytes - 1) / Bytes) }
