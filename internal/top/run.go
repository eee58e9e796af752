package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/statusline"
)

// Options select how samples are shown.
type Options struct {
	// Out gets the samples, Err warnings and progress.
	Out, Err *os.File
	// In delivers the keys; nil is the standard input, or else the terminal.
	In *os.File
	// Once stops after the first sample.
	Once bool
	// JSON writes a line of JSON per sample instead of a screen or table.
	JSON bool
	// Sort is the Key of a column; Reverse shows the least first.
	Sort    string
	Reverse bool
	// Interval is how long a live sample takes; 0 for a recording.
	Interval time.Duration
	// Origin is shown on the screen as the source of the samples.
	Origin string
	// Observe, if not nil, gets each sample first.
	Observe func(account.Sample)
	// Notice, if not nil, returns the warning to show after Observe, "" for
	// none.
	Notice func() string
	// AtEnd, if not nil, returns the warning to show at the end of the samples,
	// "" for none.
	AtEnd func() string
}

// Run shows the samples of source until it ends, the user quits, or ctx is
// cancelled, which is an error, as after Ctrl-C. It uses the full screen if Out
// is a capable terminal, else a table or JSON line for each sample.
func Run(ctx context.Context, source account.Source, o Options) error {
	if UsesScreen(o) {
		return o.fullScreen(ctx, source)
	}
	return o.stream(ctx, source)
}

// UsesScreen reports whether [Run] will use the full screen.
func UsesScreen(o Options) bool {
	return !o.Once && !o.JSON && term.IsTerminal(o.Out.Fd()) && os.Getenv("TERM") != "dumb"
}

// next gets a sample and passes it to the observer.
func (o Options) next(ctx context.Context, source account.Source) (account.Sample, error) {
	sample, err := source.Next(ctx)
	if err == nil && o.Observe != nil {
		o.Observe(sample)
	}
	return sample, err
}

func (o Options) atEnd() string {
	if o.AtEnd == nil {
		return ""
	}
	return o.AtEnd()
}

func (o Options) stream(ctx context.Context, source account.Source) error {
	stop := func() {}
	if o.Once {
		stop = o.progress()
	}
	var line []byte
	for n := 0; ; n++ {
		sample, err := o.next(ctx, source)
		if n == 0 {
			stop()
		}
		if errors.Is(err, io.EOF) {
			if notice := o.atEnd(); notice != "" {
				fmt.Fprintln(o.Err, "daybook: warning:", Safe(notice))
			}
			if n == 0 {
				return errors.New("there is no sample to show")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if o.JSON {
			if line, err = sample.AppendJSON(line[:0]); err == nil {
				line = append(line, '\n')
				_, err = o.Out.Write(line)
			}
		} else {
			if n > 0 {
				fmt.Fprintln(o.Out)
			}
			err = WriteTable(o.Out, sample, o.Sort, o.Reverse, width(o.Out))
		}
		if err != nil || o.Once {
			return err
		}
	}
}

// width of a terminal in cells; 0 for anything else.
func width(file *os.File) int {
	if !term.IsTerminal(file.Fd()) {
		return 0
	}
	columns, _, err := term.GetSize(file.Fd())
	if err != nil {
		return 0
	}
	return columns
}

// progress shows on a terminal how long the one sample will take. stop ends
// that.
func (o Options) progress() (stop func()) {
	line := statusline.On(o.Err)
	if o.Interval <= 2*time.Second || !line.Terminal() {
		return func() {}
	}
	end := time.Now().Add(o.Interval)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			left := max(time.Until(end), 0).Round(time.Second)
			line.Show(fmt.Sprintf("measuring for %v, %v left", o.Interval, left))
			select {
			case <-ticker.C:
			case <-quit:
				line.End()
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (o Options) fullScreen(ctx context.Context, source account.Source) error {
	theme := ColorTheme()
	if os.Getenv("NO_COLOR") != "" {
		theme = MonoTheme()
	}
	m := model{screen: Screen{
		Sort: o.Sort, Reverse: o.Reverse, Origin: o.Origin, IntervalSeconds: o.Interval.Seconds(), Theme: theme,
	}}
	if holder, ok := source.(interface{ Pause(bool) }); ok {
		m.pause = holder.Pause
	}
	// A signal cancels ctx, and the cancellation arrives as a message, so that
	// the program ends normally and restores the terminal.
	settings := []tea.ProgramOption{tea.WithOutput(o.Out), tea.WithoutSignalHandler()}
	if o.In != nil {
		settings = append(settings, tea.WithInput(o.In))
	}
	program := tea.NewProgram(m, settings...)
	defer context.AfterFunc(ctx, func() { program.Send(failMsg{ctx.Err()}) })()

	// Samples are taken even while the screen is paused: recordings and metrics
	// must not stop.
	pumpContext, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			sample, err := o.next(pumpContext, source)
			switch {
			case errors.Is(err, io.EOF):
				notice := "end of the samples; q quits"
				if more := o.atEnd(); more != "" {
					notice = more + "; q quits"
				}
				program.Send(endMsg{notice})
				return
			case err != nil:
				program.Send(failMsg{err})
				return
			}
			notice := ""
			if o.Notice != nil {
				notice = o.Notice()
			}
			program.Send(sampleMsg{sample, notice})
		}
	}()
	final, err := program.Run()
	stop()
	<-done
	if err != nil {
		return err
	}
	return final.(model).err
}
