package volume

import (
	"context"

	"github.com/daybook-project/daybook/volume/operation"
)

// steps runs steps that need no intent of their own: it is recorded already, or their
// work directory is removed to undo them.
func (p *Pool) steps() operation.Run { return p.engine.On(nil) }

// step runs one such step.
func (p *Pool) step(ctx context.Context, name string, do func(context.Context) error) error {
	return p.steps().Do(ctx, operation.Step{Name: name, Do: do})
}

// enter returns a step that only changes the record.
func enter(name string, change func()) operation.Step {
	return operation.Step{Name: name, Intent: func() (bool, error) {
		change()
		return true, nil
	}}
}
