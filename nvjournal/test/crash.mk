# SPDX-License-Identifier: Apache-2.0
#
# What "make test" and "make soak" run besides the programs test/*_*.c: all
# interleavings that seeds make (test-schedules), the mutants (test-mutants) and
# the fuzzers (test-fuzz). docs/nvjournal-correctness.md says what each shows.

TEST_TARGETS += test-schedules test-mutants test-fuzz
SOAK_TARGETS += soak-images soak-schedules soak-properties soak-threads soak-mutants soak-fuzz

.PHONY: test-schedules test-mutants test-fuzz soak-images soak-schedules soak-properties \
	soak-threads soak-mutants soak-fuzz

# --- The core with a point at each atomic operation ---------------------------

SCHEDULE_B := build/schedule
SCHEDULE_FLAGS := -std=gnu11 -g -O2 $(WARNINGS) -Iinclude -Icore
SCHEDULE_OBJECTS := $(patsubst %.c,$(SCHEDULE_B)/%.o,$(sort $(wildcard core/*.c test/lib/*.c)) \
	test/crash_images.c)

$(SCHEDULE_B)/core/%.o: core/%.c $(wildcard core/*.h include/*.h)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(SCHEDULE_FLAGS) -DNVJ_SCHEDULE -ffreestanding -c $< -o $@

$(SCHEDULE_B)/test/%.o: test/%.c $(wildcard test/lib/*.h include/*.h) user/region_file.c
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(SCHEDULE_FLAGS) -D_GNU_SOURCE -I. -Itest/lib -c $< -o $@

$(SCHEDULE_B)/crash_images: $(SCHEDULE_OBJECTS)
	$(call say,LD)
	$(Q)$(CC) -o $@ $^

# It compiles inline functions of the core.
$(SCHEDULE_B)/test/engine_updates.o: SCHEDULE_FLAGS += -DNVJ_SCHEDULE
$(SCHEDULE_B)/test/engine_updates.o: $(wildcard core/*.h kernel/jbd2/*.[ch])

$(SCHEDULE_B)/engine_updates: $(SCHEDULE_B)/test/engine_updates.o \
		$(filter-out %/crash_images.o,$(SCHEDULE_OBJECTS)) $(LIB)
	$(call say,LD)
	$(Q)$(CC) -o $@ $^ $(LINK_LIBS) -pthread

test-schedules: $(SCHEDULE_B)/crash_images $(SCHEDULE_B)/engine_updates
	@$(SCHEDULE_B)/engine_updates
	@$< -r 2000 -e 60 -i 2 -n 0
	@$< -r 150 -e 400 -i 1 -n 0 -w "full ring, commits that take their time"
	@$< -r 150 -e 60 -i 2 -n 0 -w "full ring, reservations that take their time"

# --- Soak -----------------------------------------------------------------------

# In pieces, each with seeds of its own, which say how far it is. SOAK_RUN is put
# before each, where something else must have the machine now and then.
SOAK_RUN ?=
# $(1): how many, $(2): the command of piece $$n.
pieces = @started=$$(date +%s); for n in $$(seq $(1)); do \
		$(SOAK_RUN) $(2) || { echo "FAIL $@: piece $$n of $(1)"; exit 1; }; \
		echo "$@: $$n of $(1), $$(($$(date +%s) - started)) s"; \
	done

soak-images: build/test/crash_images
	$(call pieces,10,$< -n 2000000 -r 56 -i 24 -s $${n}00000)

soak-schedules: $(SCHEDULE_B)/crash_images
	$(call pieces,10,$< -r 20000 -e 60 -i 2 -n 0 -s $${n}00000)
	$(SOAK_RUN) $< -r 4000 -e 400 -i 1 -n 0 -w "full ring, commits that take their time"
	$(SOAK_RUN) $< -r 4000 -e 60 -i 2 -n 0 -w "full ring, reservations that take their time"

soak-properties: build/test/property_reference
	$(call pieces,10,$< $${n}00000 5000)

soak-threads: build/test/thread_counters
	$(call pieces,10,$< $${n}000 100000)

# --- Mutants ------------------------------------------------------------------

test-mutants: $(sort $(wildcard core/*.c core/*.h test/lib/*.c test/lib/*.h))
	@CC="$(CC)" CLANG="$(CLANG)" sh test/mutants/run build/mutants

soak-mutants: $(sort $(wildcard core/*.c core/*.h test/lib/*.c test/lib/*.h))
	@CRASH_MUTANT_SOUND=1 CC="$(CC)" CLANG="$(CLANG)" $(SOAK_RUN) sh test/mutants/run build/mutants

# --- Fuzzing ------------------------------------------------------------------

FUZZ_B := build/fuzz
FUZZ_FLAGS := -std=gnu11 -g -O1 $(WARNINGS) -fno-omit-frame-pointer \
	-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -Iinclude -Icore
FUZZERS := recover check open
FUZZ_CORE := $(patsubst %.c,$(FUZZ_B)/%.o,$(sort $(wildcard core/*.c)))
FUZZ_LIB := $(patsubst %,$(FUZZ_B)/test/%.o,lib/sample lib/world lib/trace lib/schedule lib/oracle \
	fuzz/edits)
# Runs of each (of each piece, in soak): a number, not a time, so that each run of the test
# does the same. What soak has found so far it goes on from.
FUZZ_RUNS ?= 20000
FUZZ_SOAK_RUNS ?= 100000

$(FUZZ_B)/core/%.o: core/%.c $(wildcard core/*.h include/*.h)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -ffreestanding -c $< -o $@

$(FUZZ_B)/test/%.o: test/%.c $(wildcard test/lib/*.h test/fuzz/*.h include/*.h)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -D_GNU_SOURCE -I. -Itest -c $< -o $@

$(FUZZ_B)/fuzz_%: $(FUZZ_B)/test/fuzz/fuzz_%.o $(FUZZ_LIB) $(FUZZ_CORE)
	$(call say,LD)
	$(Q)$(CLANG) -fsanitize=fuzzer,address,undefined -o $@ $^

$(FUZZ_B)/corpus: $(FUZZ_B)/test/fuzz/corpus.o
	$(call say,LD)
	$(Q)$(CLANG) -fsanitize=address,undefined -o $@ $^

$(FUZZ_B)/seeds: $(FUZZ_B)/corpus
	@rm -rf $@ && mkdir -p $@ && $< $@

# $(1): runs of each, $(2): further options. Inputs that fail stay in build/fuzz.
fuzz = for f in $(FUZZERS); do \
		mkdir -p $(FUZZ_B)/found-$$f; \
		$(SOAK_RUN) $(FUZZ_B)/fuzz_$$f -runs=$(1) $(2) -max_len=256 -timeout=20 -close_fd_mask=1 \
			-artifact_prefix=$(FUZZ_B)/failed-$$f- -print_final_stats=1 \
			$(FUZZ_B)/found-$$f $(FUZZ_B)/seeds > $(FUZZ_B)/$$f.log 2>&1 || { \
			tail -n 40 $(FUZZ_B)/$$f.log; echo "FAIL fuzz_$$f"; exit 1; }; \
		echo "PASS fuzz_$$f: $$(sed -n 's/^stat::number_of_executed_units: //p' $(FUZZ_B)/$$f.log) runs," \
			"$$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' $(FUZZ_B)/$$f.log | tail -n 1) edges"; \
	done

test-fuzz: $(addprefix $(FUZZ_B)/fuzz_,$(FUZZERS)) $(FUZZ_B)/seeds
	@rm -rf $(FUZZ_B)/found-*
	@$(call fuzz,$(FUZZ_RUNS),-seed=1)

soak-fuzz: $(addprefix $(FUZZ_B)/fuzz_,$(FUZZERS)) $(FUZZ_B)/seeds
	@started=$$(date +%s); for n in $$(seq 10); do \
		$(call fuzz,$(FUZZ_SOAK_RUNS),); \
		echo "$@: $$n of 10, $$(($$(date +%s) - started)) s"; \
	done
