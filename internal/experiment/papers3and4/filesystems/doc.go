// Package filesystems makes Figs. 4 and 5 of papers 3 and 4: a mail server and a run that creates
// files, on ext4 (ext4nvj) or JFS (jfsnvj) with its journal in memory, beside the kernel's own
// ext4 or JFS.
package filesystems
