package blame

// The compiled programs are committed, so that a build does not need clang. The
// target "generate" of the Makefile compiles them again.

//go:generate go tool bpf2go -go-package blame -target bpfel programs bpf/blame.bpf.c -- -I../journal/bpf -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
