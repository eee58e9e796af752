// Package operation runs what changes the host or a pool as a list of steps. It is
// the only place where an operation can be stopped between two of its steps, as a
// killed process is: tests do so with [Engine.Stop].
//
// Before a step is done, what it is about to change is in a record on disk (its
// intent). A step is undone from wherever a crash left it. So a repair needs no
// code of its own: it reads the record and runs the same steps, backwards
// ([Run.Undo]) or forwards ([Run.DoOrUndo]), or backwards as far as that is possible
// and else forwards ([Run.UndoOrDo]).
//
// The package knows nothing of volumes and pools.
package operation

import (
	"context"
	"errors"
)

// Step is one change.
type Step struct {
	// Name appears in the points at which tests stop an operation.
	Name string
	// Intent enters in the record what Do is about to change, and says whether
	// the record has changed and must be saved first. Nil: an earlier step's
	// intent covers it.
	Intent func() (changed bool, err error)
	// Do makes the change; doing it again changes nothing. Nil: the step is only its
	// intent.
	Do func(context.Context) error
	// Undo reverts what Do did, as far as it did it; undoing again changes
	// nothing. Nil: nothing is left to revert, or another step's Undo reverts it.
	// Where the change can no longer be reverted, the error wraps ErrForward.
	Undo func(context.Context) error
}

// ErrForward is wrapped by the error of an Undo whose change can no longer be
// reverted, such as that of a file system that has moved its data. The steps can then
// only be done to their end.
var ErrForward = errors.New("it can only be finished")

// Engine runs steps. The zero value is ready; it may be shared by goroutines.
type Engine struct {
	// Stop is called at each point: after each saved intent, each Do and each
	// Undo that succeeded. It is for tests, which end the process there. Nil: no
	// call.
	Stop func(point string)
}

// A point has the step's name after its Do, or after the intent of a step without
// one. It has one of these endings after the intent of a step with a Do was saved, and
// after an Undo.
const (
	Intended = " intended"
	Undone   = " undone"
)

// Run is the execution of steps on one record.
type Run struct {
	engine *Engine
	save   func() error
}

// On returns a Run; save writes its intents to disk.
func (e *Engine) On(save func() error) Run { return Run{engine: e, save: save} }

// Do runs steps in their order, up to the first that fails. It undoes none: the
// error is that step's.
func (r Run) Do(ctx context.Context, steps ...Step) error {
	for _, step := range steps {
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

func (r Run) step(ctx context.Context, step Step) error {
	if step.Intent != nil {
		changed, err := step.Intent()
		if err != nil {
			return err
		}
		if changed {
			if err := r.save(); err != nil {
				return err
			}
			if step.Do == nil {
				r.point(step.Name)
			} else {
				r.point(step.Name + Intended)
			}
		}
	}
	if step.Do == nil {
		return nil
	}
	if err := step.Do(ctx); err != nil {
		return err
	}
	r.point(step.Name)
	return nil
}

// Undo reverts steps, the last first, up to the first that cannot be reverted.
// Which of them were done need not be known.
func (r Run) Undo(ctx context.Context, steps ...Step) error {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].Undo == nil {
			continue
		}
		if err := steps[i].Undo(ctx); err != nil {
			return err
		}
		r.point(steps[i].Name + Undone)
	}
	return nil
}

// DoOrUndo runs steps, and undoes all of them if one fails, also those after it; where
// that is no longer possible, it does them again (see [Run.UndoOrDo]). If they are all
// done in the end, there is no error. It undoes them when ctx has ended, too.
func (r Run) DoOrUndo(ctx context.Context, steps ...Step) error {
	err := r.Do(ctx, steps...)
	if err == nil {
		return nil
	}
	undone, undoErr := r.UndoOrDo(context.WithoutCancel(ctx), steps...)
	if undone || undoErr != nil {
		return errors.Join(err, undoErr)
	}
	return nil
}

// UndoOrDo undoes steps, or does all of them if one can no longer be undone. It says
// which; with an error, neither has come to its end.
func (r Run) UndoOrDo(ctx context.Context, steps ...Step) (undone bool, err error) {
	err = r.Undo(ctx, steps...)
	if errors.Is(err, ErrForward) {
		return false, r.Do(ctx, steps...)
	}
	return err == nil, err
}

func (r Run) point(name string) {
	if r.engine.Stop != nil {
		r.engine.Stop(name)
	}
}
