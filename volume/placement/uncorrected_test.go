package placement

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/cgrouptest"
)

// A control can end, or correct the weights again, while its corrections are looked up.
func TestAWeightThatChangesDuringALookIsReadAgain(t *testing.T) {
	tree := cgrouptest.Tree(t)
	at := cgrouptest.New(t, tree, "changes")
	const original = 100
	corrected := func(weight uint64) shown {
		return shown{cgroup.Setting{Default: original, Device: weight}, 10 * weight}
	}
	own := shown{files: cgroup.Setting{Default: original}}
	for name, test := range map[string]struct {
		// inForce are the weights before the first look, and then after each one.
		inForce    []shown
		now, plain shown
		err        error
	}{
		"it stays":                {[]shown{corrected(200), corrected(200)}, corrected(200), own, nil},
		"the unit's changes":      {[]shown{corrected(200), {corrected(200).files, 3000}, {corrected(200).files, 3000}}, shown{corrected(200).files, 3000}, own, nil},
		"the files change":        {[]shown{corrected(200), {corrected(300).files, 2000}, {corrected(300).files, 2000}}, shown{corrected(300).files, 2000}, own, nil},
		"control ends":            {[]shown{corrected(200), own, own}, own, own, nil},
		"it changes all the time": {[]shown{corrected(1), corrected(2), corrected(3), corrected(4), corrected(5), corrected(6)}, corrected(5), corrected(5), ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			read := func() (shown, error) {
				if looks == len(test.inForce) {
					return shown{}, fs.ErrNotExist
				}
				return test.inForce[looks], nil
			}
			look := Uncorrected(func(blockdev.Disk, string, uint64, cgroup.Setting, uint64) (cgroup.Setting, uint64, error) {
				looks++
				return own.files, own.unit, nil
			})
			now, plain, err := look.apart(tree, blockdev.Disk{}, "io.weight", at, read)
			if now != test.now || plain != test.plain || !errors.Is(err, test.err) {
				t.Errorf("%+v, %+v, %v; want %+v, %+v, %v", now, plain, err, test.now, test.plain, test.err)
			}
		})
	}
}
