package top

import (
	"context"
	"errors"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

// press sends keys to a model, each by its terminal name.
func press(t *testing.T, m model, keys ...tea.KeyPressMsg) (model, tea.Cmd) {
	t.Helper()
	var cmd tea.Cmd
	for _, k := range keys {
		var next tea.Model
		next, cmd = m.Update(k)
		m = next.(model)
	}
	return m, cmd
}

func letter(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }

func special(code rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: code} }

func testModel() model { return model{screen: testScreen(140, 24)} }

func TestKeysQuit(t *testing.T) {
	m, cmd := press(t, testModel(), letter('q'))
	if cmd == nil || cmd() != tea.Quit() || m.err != nil {
		t.Errorf("q: %v", m.err)
	}
	m, cmd = press(t, testModel(), tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if cmd == nil || !errors.Is(m.err, context.Canceled) {
		t.Errorf("ctrl+c: %v", m.err)
	}
}

func TestKeysChangeTheOrder(t *testing.T) {
	m, _ := press(t, testModel(), letter('s'), letter('s'), letter('r'))
	if m.screen.Sort != "read" || !m.screen.Reverse {
		t.Errorf("by %s, reverse %v", m.screen.Sort, m.screen.Reverse)
	}
	m, _ = press(t, testModel(), letter('S'))
	if m.screen.Sort != "name" {
		t.Errorf("one back from the first is %s", m.screen.Sort)
	}
}

func TestKeysCycleThroughTheDisks(t *testing.T) {
	m, _ := press(t, testModel(), letter('d'))
	if text := m.screen.Render(); !strings.Contains(text, "sdb 8:16") || !strings.Contains(text, "other") {
		t.Errorf("after d:\n%s", text)
	}
	m, _ = press(t, m, letter('d'))
	if text := m.screen.Render(); !strings.Contains(text, "loop0 7:0") {
		t.Errorf("after dd:\n%s", text)
	}
	empty := model{}
	press(t, empty, letter('d'), letter('D')) // nothing to go to
}

func TestAChosenDiskIsReplacedWhileItIsGone(t *testing.T) {
	m, _ := press(t, testModel(), letter('d'))
	short := testSample()
	short.Devices = short.Devices[:1]
	next, _ := m.Update(sampleMsg{sample: short})
	if text := next.(model).screen.Render(); !strings.Contains(text, "loop0 7:0") {
		t.Errorf("the disk is gone:\n%s", text)
	}
	next, _ = next.Update(sampleMsg{sample: testSample()})
	if text := next.(model).screen.Render(); !strings.Contains(text, "sdb 8:16") {
		t.Errorf("the disk is back:\n%s", text)
	}
}

func TestPauseHoldsTheScreenAndShowsTheNewestAfterwards(t *testing.T) {
	var held []bool
	m := testModel()
	m.pause = func(p bool) { held = append(held, p) }
	m, _ = press(t, m, letter('p'))
	later := testSample()
	later.Devices[0].Device = "loop7"
	next, _ := m.Update(sampleMsg{sample: later})
	m = next.(model)
	if text := m.screen.Render(); !strings.Contains(text, "loop0") || !strings.Contains(text, "PAUSED") {
		t.Errorf("paused:\n%s", text)
	}
	m, _ = press(t, m, letter('p'))
	if text := m.screen.Render(); !strings.Contains(text, "loop7") || strings.Contains(text, "PAUSED") {
		t.Errorf("after the pause:\n%s", text)
	}
	if len(held) != 2 || !held[0] || held[1] {
		t.Errorf("the source got %v", held)
	}
}

func TestArrowsChooseAContainerAndStopAtTheEnds(t *testing.T) {
	m, _ := press(t, testModel(), special(tea.KeyDown))
	if text := m.screen.Render(); !strings.Contains(text, "cgroup /ca") {
		t.Errorf("down:\n%s", text)
	}
	m, _ = press(t, m, special(tea.KeyUp), special(tea.KeyUp), special(tea.KeyUp), special(tea.KeyDown))
	if m.screen.Cursor != 1 {
		t.Errorf("the cursor went above the first row: %d", m.screen.Cursor)
	}
	m, _ = press(t, m, special(tea.KeyEnd), special(tea.KeyPgDown))
	if m.screen.Cursor != 2 {
		t.Errorf("the cursor is at %d of 3 rows", m.screen.Cursor)
	}
}

func TestHelpOpensAndCloses(t *testing.T) {
	m, _ := press(t, testModel(), letter('?'))
	if !strings.Contains(m.screen.Render(), "reverse the order") {
		t.Errorf("no help:\n%s", m.screen.Render())
	}
	m, _ = press(t, m, special(tea.KeyEscape))
	if m.screen.Help {
		t.Error("still open")
	}
}

func TestResizeIsFollowed(t *testing.T) {
	next, _ := testModel().Update(tea.WindowSizeMsg{Width: 40, Height: 8})
	got := lines(next.(model).screen)
	if len(got) != 8 {
		t.Errorf("%d lines of 8", len(got))
	}
}

func TestANoticeIsShownAsLongAsItIsTrue(t *testing.T) {
	next, _ := testModel().Update(sampleMsg{testSample(), "not recorded: 3 samples"})
	if text := next.(model).screen.Render(); !strings.Contains(text, "not recorded: 3 samples") {
		t.Errorf("no notice:\n%s", text)
	}
	next, _ = next.Update(sampleMsg{sample: testSample()})
	if text := next.(model).screen.Render(); strings.Contains(text, "not recorded") {
		t.Errorf("the notice stays:\n%s", text)
	}
}
