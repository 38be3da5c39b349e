# `make tidy`: clang-tidy over every source of the programs. .clang-tidy says what it looks for.
# A source is checked again when it, a header or the rules change.
CLANG_TIDY ?= clang-tidy
TIDY_SOURCES := $(filter-out build/% fuzz/% sanitize/%,$(wildcard */*.c))
TIDY_FLAGS := -std=gnu11 -D_GNU_SOURCE= -isystem $(BLAKE3) -I$(BUILD)/launch

tidy: $(TIDY_SOURCES:%.c=$(BUILD)/tidy/%.ok)

$(BUILD)/tidy/%.ok: %.c $(wildcard */*.h) .clang-tidy tidy.mk $(BUILD)/launch/allowed.inc $(BUILD)/launch/refused.inc
	@mkdir -p $(@D)
	$(CLANG_TIDY) --quiet $< -- $(TIDY_FLAGS)
	@touch $@

.PHONY: tidy
