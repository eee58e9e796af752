// Package ext4nvj makes Figs. 4 and 5 of papers 3 and 4: a mail server and a run that creates
// files, on ext4 with its journal in memory beside stock ext4.
package ext4nvj
