package records

import (
	"fmt"
	"strings"

	"github.com/daybook-project/daybook/volume/internal/cause"
)

// MaxNameBytes limits the name of a volume or snapshot.
const MaxNameBytes = 128

// CheckName checks the name of a volume or snapshot: 1 to
// MaxNameBytes of a-z, A-Z, 0-9, "_", "." and "-", beginning with a letter or
// digit, as Docker's. The error wraps cause.ErrInvalid.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("%w name: it is empty", cause.ErrInvalid)
	}
	if len(name) > MaxNameBytes {
		return fmt.Errorf("%w name %.20q...: %d bytes long, at most %d", cause.ErrInvalid, name, len(name), MaxNameBytes)
	}
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && strings.IndexByte("_.-", c) >= 0:
		default:
			return fmt.Errorf("%w name %q: want letters, digits, \"_\", \".\" and \"-\", beginning with a letter or digit", cause.ErrInvalid, name)
		}
	}
	return nil
}
