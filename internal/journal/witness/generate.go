package witness

//go:generate go tool bpf2go -go-package witness -target bpfel witness bpf/witness.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
