package account

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/needs"
)

// series reads a whole recording, the older files too.
func series(t *testing.T, path string) (seconds []int) {
	t.Helper()
	s, err := OpenSeries(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for {
		sample, err := s.Next(t.Context())
		if err != nil {
			if notice := s.Unfinished(); err.Error() != "EOF" || notice != "" {
				t.Fatal(err, notice)
			}
			return seconds
		}
		seconds = append(seconds, int(sample.Time.Sub(testSample(0).Time).Seconds()))
	}
}

func names(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func rotating(t *testing.T, path string, files int) *Recorder {
	t.Helper()
	r, err := OpenRotating(path, Rotation{MaxBytes: MinRotateBytes, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func recordSeconds(t *testing.T, r *Recorder, from, to int) {
	t.Helper()
	for second := from; second < to; second++ {
		s := testSample(0)
		s.Time = s.Time.Add(time.Duration(second) * time.Second)
		if err := r.Record(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARecordingIsRotatedAndBounded(t *testing.T) {
	for files := 1; files <= 3; files++ {
		path := filepath.Join(t.TempDir(), "r")
		r := rotating(t, path, files)
		recordSeconds(t, r, 0, 20)
		want := strings.Join([]string{"r", "r.1", "r.2"}[:files], " ")
		if got := names(t, path); got != want {
			t.Fatalf("of %d files there are %s", files, got)
		}
		all, _ := RecordingFiles(path)
		for _, name := range all {
			if info, err := os.Stat(name); err != nil || info.Size() > MinRotateBytes {
				t.Errorf("%s: %v, %d bytes", name, err, info.Size())
			}
			if len(readFile(t, name)) == 0 {
				t.Errorf("%s has no sample", name)
			}
		}
		// The newest are there, in order and without a gap.
		got := series(t, path)
		if len(got) < 2*files-1 || got[len(got)-1] != 19 || !slices.IsSorted(got) || got[len(got)-1]-got[0] != len(got)-1 {
			t.Errorf("with %d files the series is %v", files, got)
		}
		// The next session goes on, and other processes are kept out.
		if _, err := OpenRecorder(path); err == nil {
			t.Error("a second process may record to the new file")
		}
		r.Close()
		recordSeconds(t, rotating(t, path, files), 20, 23)
		if got := series(t, path); got[len(got)-1] != 22 || got[len(got)-1]-got[0] != len(got)-1 {
			t.Errorf("with %d files the series then is %v", files, got)
		}
	}
}

func TestFewerFilesRemoveTheOldest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r := rotating(t, path, 5)
	recordSeconds(t, r, 0, 30)
	r.Close()
	recordSeconds(t, rotating(t, path, 2), 30, 36)
	if got := names(t, path); got != "r r.1" {
		t.Errorf("there are %s", got)
	}
	// What was moved away is no hindrance.
	if err := os.Remove(path + ".1"); err != nil {
		t.Fatal(err)
	}
	if got := series(t, path); got[len(got)-1] != 35 {
		t.Errorf("%v", got)
	}
}

func TestRotationLeavesForeignFilesAlone(t *testing.T) {
	for _, name := range []string{"r.1", "r.2", "r.new"} {
		path := filepath.Join(t.TempDir(), "r")
		foreign := filepath.Join(filepath.Dir(path), name)
		if err := os.WriteFile(foreign, []byte("a letter\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := OpenRotating(path, Rotation{MaxBytes: MinRotateBytes, Files: 3})
		for second := 0; err == nil && second < 20; second++ {
			err = r.Record(testSample(second))
		}
		if err == nil || !strings.Contains(err.Error(), foreign+" exists and is not a recording") {
			t.Errorf("%s: %v", name, err)
		}
		if text, _ := os.ReadFile(foreign); string(text) != "a letter\n" {
			t.Errorf("%s is now %q", name, text)
		}
		if name != "r.new" {
			if _, err := os.Lstat(path); r != nil || err == nil {
				t.Errorf("%s: the recording was started", name)
			}
		} else if got := series(t, path); len(got) == 0 {
			t.Errorf("%s: the samples before the rotation are lost", name)
		}
	}
}

func TestRotationSurvivesAKillAtEveryStep(t *testing.T) {
	// What a kill leaves: a new file that was started, or gaps in the names.
	for name, leave := range map[string]func(path string) error{
		"empty new file": func(path string) error { return os.WriteFile(path+nextSuffix, nil, 0o644) },
		"half a header":  func(path string) error { return os.WriteFile(path+nextSuffix, []byte(`{"daybook_re`), 0o644) },
		"started": func(path string) error {
			return os.WriteFile(path+nextSuffix, []byte("{\"daybook_recording\":1}\n"), 0o644)
		},
		"older ones moved": func(path string) error { return os.Rename(path+".1", path+".2") },
		"this one moved": func(path string) error {
			return errors.Join(os.Rename(path+".1", path+".2"), os.Rename(path, path+".1"))
		},
		"the oldest removed": func(path string) error { return os.Remove(path + ".1") },
	} {
		path := filepath.Join(t.TempDir(), "r")
		r := rotating(t, path, 2)
		recordSeconds(t, r, 0, 8)
		r.Close()
		kept := series(t, path)
		if err := leave(path); err != nil {
			t.Fatal(err)
		}
		if got := series(t, path); name != "the oldest removed" && fmt.Sprint(got) != fmt.Sprint(kept) {
			t.Errorf("%s: after the kill the series is %v, before %v", name, got, kept)
		}
		recordSeconds(t, rotating(t, path, 2), 8, 20)
		got := series(t, path)
		if names(t, path) != "r r.1" || got[len(got)-1] != 19 || !slices.IsSorted(got) {
			t.Errorf("%s: in the end %s, %v", name, names(t, path), got)
		}
		if _, err := os.Lstat(path + nextSuffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While files get other names, each is read once, and none is missing.
func TestARecordingMayBeReadWhileItIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r := rotating(t, path, 4)
	recordSeconds(t, r, 0, 20)
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for second := 20; ; second++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			s := testSample(0)
			s.Time = s.Time.Add(time.Duration(second) * time.Second)
			if err := r.Record(s); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 300 {
		s, err := OpenSeries(path)
		if err != nil {
			t.Error(err)
			continue
		}
		before := -1
		for {
			sample, err := s.Next(t.Context())
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				break
			}
			second := int(sample.Time.Sub(testSample(0).Time).Seconds())
			if before >= 0 && second != before+1 {
				t.Errorf("second %d follows on %d", second, before)
			}
			before = second
		}
		s.Close()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// As one to a larger disk.
func TestARotatedRecordingStaysWhereASymbolicLinkLeads(t *testing.T) {
	for _, target := range []string{"/far/r", "far/r", "other"} {
		dir := t.TempDir()
		far := filepath.Join(dir, "far")
		if strings.HasPrefix(target, "/") {
			target = dir + target
		}
		link := filepath.Join(dir, "link")
		if err := errors.Join(os.Mkdir(far, 0o755), os.Symlink("far/r", filepath.Join(dir, "other")), os.Symlink(target, link)); err != nil {
			t.Fatal(err)
		}
		for run := range 3 { // the link leads nowhere at first
			r := rotating(t, link, 3)
			recordSeconds(t, r, 6*run, 6*run+6)
			r.Close()
		}
		if beside, there := names(t, link), names(t, filepath.Join(far, "r")); beside != "far link other" || there != "r r.1 r.2" {
			t.Errorf("%s: there are %s, and %s where the link leads", target, beside, there)
		}
		if got := series(t, link); len(got) < 5 || got[len(got)-1] != 17 || got[len(got)-1]-got[0] != len(got)-1 {
			t.Errorf("%s: the series is %v", target, got)
		}
	}
}

func TestALinkOfAnotherUserInASharedDirectoryIsNotFollowed(t *testing.T) {
	needs.Root(t)
	shared, private := t.TempDir(), t.TempDir()
	target, own := filepath.Join(private, "target"), filepath.Join(private, "own")
	link := filepath.Join(shared, "r")
	if err := errors.Join(
		os.Chmod(shared, 0o777|os.ModeSticky), os.Symlink(target, link), os.Lchown(link, 65534, 65534), os.Symlink(link, own),
	); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, own} {
		if r, err := OpenRecorder(path); err == nil {
			r.Close()
			t.Errorf("%s: the recording was opened", path)
		} else if !strings.Contains(err.Error(), "user 65534") {
			t.Errorf("%s: %v; want the owner of the link", path, err)
		}
		if s, err := OpenSeries(path); err == nil || !strings.Contains(err.Error(), "user 65534") {
			t.Errorf("%s: it is read: %v, %v", path, s, err)
		}
		if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a file where the link leads: %v", path, err)
		}
	}
	if err := os.Lchown(link, 0, 0); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecorder(own)
	if err != nil {
		t.Fatalf("a link of root's: %v", err)
	}
	r.Close()
}

// exchange changes the names of two files again and again until the test ends.
func exchange(t *testing.T, a, b string) {
	t.Helper()
	var stop atomic.Bool
	done := make(chan error)
	go func() {
		var err error
		for err == nil && !stop.Load() {
			err = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		}
		done <- err
	}()
	t.Cleanup(func() {
		stop.Store(true)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestALinkOfAnotherUserIsNotFollowedIfItIsPutThereMeanwhile(t *testing.T) {
	needs.Root(t)
	shared, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	file, link := filepath.Join(shared, "r"), filepath.Join(shared, "link")
	if err := errors.Join(
		os.Chmod(shared, 0o777|os.ModeSticky), os.WriteFile(file, nil, 0o644), os.Symlink(target, link), os.Lchown(link, 65534, 65534),
	); err != nil {
		t.Fatal(err)
	}
	exchange(t, file, link)
	for range 20000 {
		if at, _, err := resolved(file); err == nil && at != file {
			t.Fatalf("it leads to %s", at)
		}
	}
}

func TestALinkThatIsPutInPlaceOfTheFileIsNotFollowed(t *testing.T) {
	dir, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	file, link := filepath.Join(dir, "r"), filepath.Join(dir, "link")
	first, err := OpenRecorder(target)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	at, err := os.Stat(target)
	if err := errors.Join(err, os.WriteFile(file, nil, 0o644), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	exchange(t, file, link)
	for range 300 {
		if r, err := OpenRecorder(file); err == nil {
			info, err := r.file.Stat()
			if r.path == file && (err != nil || os.SameFile(info, at)) {
				t.Errorf("it records to another file than its path: %v", err)
			}
			r.Close()
		}
		if s, err := OpenSeries(file); err == nil {
			if s.path == file && os.SameFile(s.readers[0].opened, at) {
				t.Error("it reads another file than its path")
			}
			s.Close()
		}
		if t.Failed() {
			break
		}
	}
}

func TestTheDirectoryAboveALinkIsThatOfTheKernel(t *testing.T) {
	needs.Root(t)
	dir, shared := t.TempDir(), t.TempDir()
	deep, target := filepath.Join(shared, "deep"), filepath.Join(dir, "target")
	path := filepath.Join(dir, "l") + "/../r" // in shared
	if err := errors.Join(os.Mkdir(deep, 0o755), os.Symlink(deep, filepath.Join(dir, "l")), os.Symlink(target, filepath.Join(shared, "r"))); err != nil {
		t.Fatal(err)
	}
	for run := range 2 {
		r := rotating(t, path, 3)
		recordSeconds(t, r, 6*run, 6*run+6)
		r.Close()
	}
	if got := series(t, path); len(got) < 5 || got[len(got)-1] != 11 {
		t.Errorf("the series is %v", got)
	}
	if err := errors.Join(os.Chmod(shared, 0o777|os.ModeSticky), os.Lchown(filepath.Join(shared, "r"), 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if r, err := OpenRecorder(path); err == nil || !strings.Contains(err.Error(), "user 65534") {
		t.Errorf("a link of another user: %v, %v", r, err)
	}
	file := filepath.Join(dir, "l") + "/../file"
	for run := range 2 {
		r := rotating(t, file, 3)
		recordSeconds(t, r, 6*run, 6*run+6)
		r.Close()
	}
	if got := series(t, file); len(got) < 5 || got[len(got)-1] != 11 {
		t.Errorf("the series without a link is %v", got)
	}
}

func TestARecordingIsReadFromAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r, err := OpenRecorder(path)
	if err != nil {
		t.Fatal(err)
	}
	recordSeconds(t, r, 0, 3)
	r.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if _, err := write.Write(text); err != nil {
		t.Fatal(err)
	}
	write.Close()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", read.Fd()), link); err != nil {
		t.Fatal(err)
	}
	if got := series(t, link); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("the series is %v", got)
	}
}

// The power can fail when the name of the new file is on the disk, and its content is not.
func TestTheOlderFilesAreReadIfTheNewestHasNoHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r")
	r := rotating(t, path, 3)
	recordSeconds(t, r, 0, 9)
	r.Close()
	for _, text := range []string{"", `{"daybook_rec`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSeries(path)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		samples := 0
		for ; err == nil; samples++ {
			_, err = s.Next(t.Context())
		}
		if !errors.Is(err, io.EOF) || samples < 3 || s.Unfinished() != path+": its first line is unfinished; it has no sample" {
			t.Errorf("%q: %d samples, %v, %q", text, samples, err, s.Unfinished())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"a letter\n", `{"daybook_rec` + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenSeries(path); err == nil {
			t.Errorf("%q counts as a recording", text)
		}
	}
}
