# BLAKE3 from its authors' own sources, which set-up obtains. They bring assembly for each processor and choose at run time.
BLAKE3 ?= ../.tools/blake3
BLAKE3_LIBRARY := $(BUILD)/libblake3.a
# Not ours to warn about.
CFLAGS += -isystem $(BLAKE3)

blake3_x86_64 := sse2_x86-64_unix.S sse41_x86-64_unix.S avx2_x86-64_unix.S avx512_x86-64_unix.S
blake3_aarch64 := neon.c
blake3_sources := $(addprefix $(BLAKE3)/,blake3.c blake3_dispatch.c blake3_portable.c \
	$(addprefix blake3_,$(blake3_$(firstword $(subst -, ,$(shell $(CC) -dumpmachine))))))

# Without sanitizers also for a build that has them: the assembly has none.
$(BLAKE3_LIBRARY): $(blake3_sources) lib/blake3.mk | $(BUILD)
	mkdir -p $(BUILD)/blake3
	cd $(BUILD)/blake3 && $(CC) -O2 -std=gnu11 -fPIE $(HARDENING) $(FORTIFY) -I$(abspath $(BLAKE3)) -c $(abspath $(blake3_sources))
	rm -f $@
	ar rcs $@ $(BUILD)/blake3/*.o

$(BLAKE3)/blake3.c:
	@echo "BLAKE3 is missing: run bin/coppice, whose set-up obtains it" >&2; false
