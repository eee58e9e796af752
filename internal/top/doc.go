// Package top shows samples: on the full screen of a terminal, as a plain
// table, or as JSON lines.
//
// The screen is a pure function of the sample, the size and the user's choices
// ([Screen.Render]). The terminal is in model.go and the flow of samples in
// run.go. A live meter and a recording are both an [account.Source] and are
// shown by the same code.
//
// Container names, cgroup paths and recordings are untrusted input: every text
// is sanitized by [Safe] before it reaches a terminal, and cut to the available
// width.
package top
