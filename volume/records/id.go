package records

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// NewID returns a random UUID, version 4.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return formatID(b, 4)
}

// JournalDeviceID is the UUID, version 8, of the journal that create makes on the JournalDevice. It
// is another than that of the file system, because a UUID names one device.
func (v Volume) JournalDeviceID() string {
	sum := sha256.Sum256([]byte("journal of " + v.ID))
	return formatID([16]byte(sum[:16]), 8)
}

func formatID(b [16]byte, version byte) string {
	b[6], b[8] = b[6]&0x0f|version<<4, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// IsID says whether a text has the form of a UUID of NewID.
func IsID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i, c := range []byte(id) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// Origin names a volume or snapshot, as the source of a copy.
func Origin(name, snapshot string) string {
	if snapshot == "" {
		return name
	}
	return name + "@" + snapshot
}
