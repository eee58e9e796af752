package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/volume"
)

// The thread of a journal in memory is not called a thread of jbd2, also not in a warning.
func TestInspectNamesTheThreadOfTheJournal(t *testing.T) {
	for thread, memory := range map[string]*volume.MemoryJournal{"jbd2 thread": nil, "nvj thread": {}} {
		s := volume.Status{Mountpoint: "/srv/db", JBD2PID: 7, JournalProcessorLimit: "/box"}
		s.Attachment, s.JournalMemory = &volume.Attachment{}, memory
		var said strings.Builder
		writeAttachment(func(key, format string, words ...any) { fmt.Fprintln(&said, key, fmt.Sprintf(format, words...)) }, s)
		for _, want := range []string{"\n" + thread + " 7,", "throttles the " + thread + ":"} {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%q is not in\n%s", want, &said)
			}
		}
	}
}
