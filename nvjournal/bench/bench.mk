# SPDX-License-Identifier: Apache-2.0
#
# The benchmark. "make bench" measures with the small recordings that are kept
# here and prints JSON into build/bench.json; "make bench-nvjournal" of the
# repository records anew, measures all, and makes the page of it.

BENCH := build/bench/bench
BENCH_OBJECTS := $(patsubst %.c,build/%.o,$(sort $(wildcard bench/*.c)))
BENCH_TARGETS += bench-sample
# PMDK is what is compared with, and left out where it is not installed.
BENCH_PMDK := $(foreach library,pmemobj pmemlog,\
	$(if $(shell $(PKG_CONFIG) --exists lib$(library) && echo yes),$(library)))
BENCH_FLAGS := $(FLAGS) -D_GNU_SOURCE $(if $(filter pmemobj,$(BENCH_PMDK)),-DBENCH_PMEMOBJ) \
	$(if $(filter pmemlog,$(BENCH_PMDK)),-DBENCH_PMEMLOG)
BENCH_SAMPLES := $(patsubst bench/%.blocks.gz,build/bench/%.blocks,$(wildcard bench/*.blocks.gz))

.PHONY: bench-program bench-sample

bench-program: $(BENCH)

build/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(TOOL) $(BENCH_FLAGS) -c $< -o $@

$(BENCH): $(BENCH_OBJECTS) $(LIB)
	$(TOOL) $(LINK_FLAGS) -o $@ $^ $(LINK_LIBS) $(patsubst %,-l%,$(BENCH_PMDK)) -lm

build/bench/%.blocks: bench/%.blocks.gz
	@mkdir -p $(@D)
	gzip -dc $< > $@

bench-sample: $(BENCH) $(BENCH_SAMPLES)
	$(BENCH) $(foreach sample,$(BENCH_SAMPLES),--stream $(basename $(notdir $(sample)))=$(sample)) \
		$(BENCHFLAGS) > build/bench.json
	@echo "measured: build/bench.json"

-include $(wildcard build/bench/*.d)
