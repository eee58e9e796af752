# The formal model: docs/nvjournal-model.md. Included by the Makefile.
TEST_TARGETS += test-model
SOAK_TARGETS += soak-model

MODEL_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

.PHONY: test-model soak-model

test-model: ## verify the formal model exhaustively, small bounds: 75 s on two cores, 2.4 GB at most (spin)
	$(MODEL_DIR)/verify $(MODEL_DIR)/quick.cases

soak-model: ## the same with larger bounds: some 8 minutes, 10 GB at most
	MODEL_JOBS=1 MODEL_MEGABYTES=10000 $(MODEL_DIR)/verify $(MODEL_DIR)/soak.cases
