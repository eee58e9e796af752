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

# --- The counter of transfers: the core and the engines, with each access reported ---

TRANSFERS := build/bench/transfers/transfers
TRANSFERS_TRACED := $(patsubst %.c,build/bench/transfers/traced/%.o,\
	$(filter-out core/persist%.c,$(sort $(wildcard core/*.c))) \
	bench/engine_nvjournal.c bench/engine_one_lock.c bench/worker.c)
TRANSFERS_OBJECTS := $(patsubst bench/%.c,build/bench/%.o,$(sort $(wildcard bench/transfers/*.c)) \
	bench/stream.c)

.PHONY: transfers-program
transfers-program: $(TRANSFERS) $(BENCH_SAMPLES)

# In a variable of its own: FLAGS may have other sanitizers.
TRANSFERS_FLAGS := -std=gnu11 -g -O2 $(WARNINGS) -Iinclude -Icore -DNVJ_TRANSFERS -MMD -MP

build/bench/transfers/traced/core/%.o: core/%.c
	@mkdir -p $(@D)
	$(TOOL) $(TRANSFERS_FLAGS) -ffreestanding -fsanitize=thread -DTRANSFERS_TRACED \
		-include bench/transfers/traced.h -c $< -o $@

build/bench/transfers/traced/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(TOOL) $(TRANSFERS_FLAGS) -D_GNU_SOURCE -fsanitize=thread -DTRANSFERS_TRACED \
		-include bench/transfers/traced.h -c $< -o $@

build/bench/transfers/%.o: bench/transfers/%.c
	@mkdir -p $(@D)
	$(TOOL) $(TRANSFERS_FLAGS) -D_GNU_SOURCE -c $< -o $@

$(TRANSFERS): $(TRANSFERS_OBJECTS) $(TRANSFERS_TRACED)
	$(TOOL) -o $@ $^

build/bench/%.blocks: bench/%.blocks.gz
	@mkdir -p $(@D)
	gzip -dc $< > $@

bench-sample: $(BENCH) $(BENCH_SAMPLES)
	$(BENCH) $(foreach sample,$(BENCH_SAMPLES),--stream $(basename $(notdir $(sample)))=$(sample)) \
		$(BENCHFLAGS) > build/bench.json
	@echo "measured: build/bench.json"

-include $(wildcard build/bench/*.d build/bench/transfers/*.d build/bench/transfers/traced/*/*.d)
