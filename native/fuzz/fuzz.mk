# `make fuzzers`: one program for each file here that says what an input is. Only clang has the fuzzer that they are linked with.
FUZZ_CC ?= clang
FUZZERS := parcel layer agent-unpack agent-frames pool launch index node below json ignore
FUZZ_FLAGS := -g -O1 -fno-omit-frame-pointer -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -std=gnu11 \
	-D_GNU_SOURCE= -isystem $(BLAKE3) -Wall -Wextra -Werror

# What of the program a fuzzer goes with, besides what it includes.
fuzzed_parcel := lib/stop.c parcel/main.c parcel/pack.c parcel/unpack.c
fuzzed_layer := fuzz/tar.c lib/stop.c lib/write.c layer/main.c layer/pack.c
fuzzed_agent := fuzz/agent.c lib/descent.c lib/remove.c lib/write.c $(filter-out $(addprefix agent/,main.c process.c machine.c lend.c relro.c accept.c helper.c),$(wildcard agent/*.c))
fuzzed_agent-unpack := fuzz/tar.c $(filter-out agent/unpack.c,$(fuzzed_agent))
fuzzed_agent-frames := $(filter-out agent/loop.c,$(fuzzed_agent))
fuzzed_pool := lib/descent.c lib/hash.c lib/remove.c lib/write.c $(filter-out pool/main.c,$(wildcard pool/*.c))
fuzzed_launch := lib/write.c launch/message.c launch/reason.c
fuzzed_index := lib/hash.c lib/write.c fuzz/tree.c tree/index.c tree/node.c tree/common.c tree/since.c
fuzzed_node := lib/hash.c lib/write.c fuzz/tree.c tree/node.c tree/common.c
fuzzed_below := tree/below.c
fuzzed_json := tree/json.c
fuzzed_ignore := lib/hash.c lib/write.c fuzz/tree.c tree/ignore.c tree/node.c tree/common.c
fuzz_flags_parcel := -Dmain=program_main
fuzz_flags_layer := -Dmain=program_main
fuzz_flags_index := -Dmmap=fuzz_mmap -Dmunmap=fuzz_munmap
fuzz_flags_ignore := -Dopenat=fuzz_openat

fuzzers: $(FUZZERS:%=$(BUILD)/fuzz-%)

# The harness itself keeps the real functions.
$(BUILD)/fuzz-harness.o: fuzz/harness.c fuzz/harness.h fuzz/fuzz.mk | $(BUILD)
	$(FUZZ_CC) $(FUZZ_FLAGS) -c -o $@ $<

$(BUILD)/fuzz-%: fuzz/%.c $(BUILD)/fuzz-harness.o $(BLAKE3_LIBRARY) $(wildcard */*.c */*.h) fuzz/fuzz.mk | $(BUILD)
	$(FUZZ_CC) $(FUZZ_FLAGS) -include fuzz/redirect.h $(fuzz_flags_$*) -pthread -o $@.new $< $(fuzzed_$*) $(BUILD)/fuzz-harness.o $(BLAKE3_LIBRARY)
	mv $@.new $@

.PHONY: fuzzers
