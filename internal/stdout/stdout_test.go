package stdout

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAFailedWriteIsTheErrorOfACommandWithoutOne(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	out := On(full)
	if err := out.Or(nil); err != nil {
		t.Errorf("nothing was written: %v", err)
	}
	fmt.Fprint(out, "lost")
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out.file = null
	fmt.Fprint(out, "written") // a later success does not undo the loss
	if err := out.Or(nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("after a write to a full device: %v", err)
	}
	own := errors.New("own")
	if err := out.Or(own); err != own {
		t.Errorf("a command with an error: %v", err)
	}
	if out.Fd() != out.file.Fd() {
		t.Error("it has another descriptor than its file")
	}
}
