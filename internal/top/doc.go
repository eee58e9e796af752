// Package top shows samples: on the whole screen of a terminal, as a plain
// table, or as JSON lines.
//
// What is on the screen is a pure function of the sample, the size and the
// reader's choices ([Screen.Render]); the terminal is in model.go and the flow
// of samples in run.go. A live meter and a recording come in as the same
// [account.Source] and are shown by the same code.
//
// Container names, cgroup paths and recordings are written by strangers: every
// text goes through [Safe] before it reaches a terminal, and through a cut to
// the width that is left for it.
package top
