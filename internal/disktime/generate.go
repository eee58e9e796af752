package disktime

// The compiled program is committed, so that a build does not need clang. The
// kernel types are those of package journal.

//go:generate go tool bpf2go -go-package disktime -target bpfel disktime bpf/disktime.bpf.c -- -I../journal/bpf -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
