// Package chunk has the unit in which images of volumes are copied, compared and
// sent, and the checksum of a chunk.
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

// Sum is a chunk's SHA-256. The zero value is the sum of a chunk of zeros, with blocks or
// without.
type Sum [sha256.Size]byte

// SumOf returns the sum of a chunk.
func SumOf(chunk []byte) Sum {
	if IsZero(chunk) {
		return Sum{}
	}
	return sha256.Sum256(chunk)
}

// Zeros is a chunk of zeros.
var Zeros = Aligned(Bytes)

// Aligned allocates memory for direct I/O, aligned to a page.
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

// ImageSum is the checksum of an image: the SHA-256 of its size in bytes (little endian)
// and of its chunks' sums.
func ImageSum(sizeBytes uint64, sums []Sum) Sum {
	h := sha256.New()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, sizeBytes)) // never fails
	for i := range sums {
		_, _ = h.Write(sums[i][:])
	}
	return Sum(h.Sum(nil))
}

// Count is the number of chunks of an image of that size.
func Count(sizeBytes uint64) int { return int((sizeBytes + Bytes - 1) / Bytes) }
