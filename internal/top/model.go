package top

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/daybook-project/daybook/internal/account"
)

// sampleMsg delivers the next sample; notice is a warning to show with it.
type sampleMsg struct {
	sample account.Sample
	notice string
}

// endMsg marks the end of the samples; notice gives the reason.
type endMsg struct{ notice string }

// failMsg ends the program with an error.
type failMsg struct{ err error }

// model converts keys and samples into screens.
type model struct {
	screen Screen
	// pending is the newest sample that came while paused.
	pending *account.Sample
	// pause, if not nil, also pauses the source (a recording can wait).
	pause func(bool)
	// err is the error that ended the program.
	err error
}

func (m model) Init() tea.Cmd { return nil }

func (m model) View() tea.View {
	view := tea.NewView(m.screen.Render())
	view.AltScreen = true
	view.WindowTitle = "daybook top"
	return view
}

func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.Width, m.screen.Height = msg.Width, msg.Height
	case sampleMsg:
		m.screen.Notice = msg.notice
		if m.screen.Paused && m.screen.Sample != nil {
			m.pending = &msg.sample
			break
		}
		m.screen.Sample = &msg.sample
	case endMsg:
		m.screen.Notice = msg.notice
	case failMsg:
		m.err = msg.err
		return m, tea.Quit
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	m.screen = m.screen.clamped()
	return m, nil
}

func (m model) key(key string) (tea.Model, tea.Cmd) {
	s := &m.screen
	_, page, _ := s.layout()
	switch key {
	case "q":
		return m, tea.Quit
	case "ctrl+c":
		m.err = context.Canceled
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "?", "h", "f1":
		s.Help = !s.Help
	case "esc", "enter":
		s.Help = false
	case "s":
		s.Sort = Columns[(columnByKey(s.Sort)+1)%len(Columns)].Key
	case "S":
		s.Sort = Columns[(columnByKey(s.Sort)+len(Columns)-1)%len(Columns)].Key
	case "b":
		s.Waits = !s.Waits
	case "r":
		s.Reverse = !s.Reverse
	case "d", "tab", "right":
		m.nextDevice(1)
	case "D", "shift+tab", "left":
		m.nextDevice(-1)
	case "p", "space":
		m.togglePause()
	case "up", "k":
		s.Cursor--
	case "down", "j":
		s.Cursor++
	case "pgup":
		s.Cursor -= page
	case "pgdown":
		s.Cursor += page
	case "home", "g":
		s.Cursor = 0
	case "end", "G":
		s.Cursor = 1 << 30
	}
	m.screen = s.clamped()
	return m, nil
}

func (m *model) nextDevice(step int) {
	s := &m.screen
	if s.Sample == nil || len(s.Sample.Devices) == 0 {
		return
	}
	_, i := s.device()
	n := len(s.Sample.Devices)
	s.Device = s.Sample.Devices[(i+step+n)%n].Device
	s.Cursor, s.Offset = 0, 0
}

func (m *model) togglePause() {
	s := &m.screen
	s.Paused = !s.Paused
	if m.pause != nil {
		m.pause(s.Paused)
	}
	if !s.Paused && m.pending != nil {
		s.Sample, m.pending = m.pending, nil
	}
}
