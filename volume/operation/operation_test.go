package operation

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// ledger is a record, and what steps did to the host.
type ledger struct {
	saved, now []string
	host       []string
}

func (l *ledger) save() error {
	l.saved = slices.Clone(l.now)
	return nil
}

func (l *ledger) step(name string, fails error) Step {
	return Step{
		Name: name,
		Intent: func() (bool, error) {
			if slices.Contains(l.now, name) {
				return false, nil
			}
			l.now = append(l.now, name)
			return true, nil
		},
		Do: func(context.Context) error {
			if !slices.Contains(l.saved, name) {
				return errors.New(name + " is done before its intent is saved")
			}
			if fails != nil {
				return fails
			}
			l.host = append(l.host, name)
			return nil
		},
		Undo: func(ctx context.Context) error {
			l.host = slices.DeleteFunc(l.host, func(s string) bool { return s == name })
			return ctx.Err()
		},
	}
}

// killed is what a test's Stop throws, as a killed process goes no further.
type killed struct{}

func stoppedAt(point int, run func(*Engine)) (points []string) {
	engine := &Engine{}
	engine.Stop = func(name string) {
		points = append(points, name)
		if len(points) == point {
			panic(killed{})
		}
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	run(engine)
	return points
}

// Stopped at any point, all that is on the host is in the saved record, and undoing
// the same steps leaves nothing.
func TestEachIntentIsSavedBeforeItsStepIsDone(t *testing.T) {
	want := []string{"a intended", "a", "b intended", "b", "b undone", "a undone"}
	for point := 1; point <= len(want)+1; point++ {
		l := &ledger{}
		points := stoppedAt(point, func(e *Engine) {
			steps := []Step{l.step("a", nil), l.step("b", nil)}
			if err := e.On(l.save).Do(t.Context(), steps...); err != nil {
				t.Fatal(err)
			}
			if err := e.On(l.save).Undo(t.Context(), steps...); err != nil {
				t.Fatal(err)
			}
		})
		if !slices.Equal(points, want[:min(point, len(want))]) {
			t.Errorf("stopped at %d: points %q", point, points)
		}
		for _, done := range l.host {
			if !slices.Contains(l.saved, done) {
				t.Errorf("stopped at %d: %s is on the host and in no record", point, done)
			}
		}
		if err := (&Engine{}).On(l.save).Undo(t.Context(), l.step("a", nil), l.step("b", nil)); err != nil || len(l.host) > 0 {
			t.Errorf("stopped at %d: after a repair %q is left, %v", point, l.host, err)
		}
	}
}

func TestAFailedStepUndoesAllAlsoWhenTheCallerHasEnded(t *testing.T) {
	l := &ledger{}
	wrong := errors.New("wrong")
	ctx, cancel := context.WithCancel(t.Context())
	steps := []Step{l.step("a", nil), {Name: "end", Do: func(context.Context) error { cancel(); return nil }}, l.step("b", wrong), l.step("c", nil)}
	err := (&Engine{}).On(l.save).DoOrUndo(ctx, steps...)
	if !errors.Is(err, wrong) || errors.Is(err, context.Canceled) || len(l.host) > 0 {
		t.Errorf("%v; left: %q", err, l.host)
	}
	if slices.Contains(l.saved, "c") {
		t.Error("a step after the one that failed was started")
	}
}

func TestAnIntentThatCannotBeSavedStopsItsStep(t *testing.T) {
	l := &ledger{}
	full := errors.New("no space")
	run := (&Engine{}).On(func() error { return full })
	if err := run.Do(t.Context(), l.step("a", nil)); !errors.Is(err, full) || len(l.host) > 0 {
		t.Errorf("%v; done: %q", err, l.host)
	}
}

// A step that can no longer be undone is done to the end, with all others, by the same
// steps.
func TestWhatCanNoLongerBeUndoneIsFinished(t *testing.T) {
	l := &ledger{}
	wrong := errors.New("wrong")
	failing := wrong
	moved := Step{Name: "moved", Undo: func(context.Context) error { return ErrForward }}
	last := Step{Name: "last", Do: func(context.Context) error { return failing }}
	if err := (&Engine{}).On(l.save).DoOrUndo(t.Context(), l.step("a", nil), moved, last); !errors.Is(err, wrong) || !slices.Contains(l.host, "a") {
		t.Errorf("%v; left: %q", err, l.host)
	}
	once := Step{Name: "once", Do: func(context.Context) (err error) {
		err, failing = failing, nil
		return err
	}}
	if err := (&Engine{}).On(l.save).DoOrUndo(t.Context(), l.step("a", nil), moved, once); err != nil || !slices.Contains(l.host, "a") {
		t.Errorf("finished at the second attempt: %v; left: %q", err, l.host)
	}
	for _, c := range []struct {
		steps  []Step
		undone bool
	}{{[]Step{l.step("a", nil), moved}, false}, {[]Step{l.step("a", nil)}, true}} {
		if undone, err := (&Engine{}).On(l.save).UndoOrDo(t.Context(), c.steps...); err != nil || undone != c.undone || slices.Contains(l.host, "a") == c.undone {
			t.Errorf("undone %v, %v; left: %q", undone, err, l.host)
		}
	}
}
