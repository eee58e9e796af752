package volume

import (
	"context"

	"github.com/daybook-project/daybook/volume/operation"
)

// run runs steps whose intents are in a volume's record.
func (p *Pool) run(record *Record) operation.Run {
	return p.engine.On(func() error { return p.files.Write(*record) })
}

// steps runs steps whose intents are recorded already, or that are undone by what is
// in the pool's work: a directory in which something is made.
func (p *Pool) steps() operation.Run { return p.engine.On(nil) }

// step runs one of these.
func (p *Pool) step(ctx context.Context, name string, do func(context.Context) error) error {
	return p.steps().Do(ctx, operation.Step{Name: name, Do: do})
}

// enter is a step that only changes the record.
func enter(name string, change func()) operation.Step {
	return operation.Step{Name: name, Intent: func() (bool, error) {
		change()
		return true, nil
	}}
}
