package journal

// The compiled programs are committed, so that a build does not need clang. The
// target "generate" of the Makefile compiles them again.

//go:generate go tool bpf2go -go-package journal -target bpfel -type commit attribution bpf/attribution.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
//go:generate go tool bpf2go -go-package journal -target bpfel -type commit attributionUntyped bpf/attribution.bpf.c -- -DUNTYPED_TASK -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
//go:generate go tool bpf2go -go-package journal -target bpfel syscalls bpf/syscalls.bpf.c -- -DUNTYPED_TASK -O2 -mcpu=v3 -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-declarations
