PROGRAMS += $(BUILD)/coppice-launch
launch_sources := $(wildcard launch/*.c place/*.c mounts/*.c) lib/processors.c lib/write.c

# Turns a list of names into cases that are left out where this machine's headers lack the call.
launch_numbers = awk -F= '/^[a-z]/ { \
	if ($$2) printf "\#ifdef __NR_%s\n__NR_%s,\n\#else\n%d,\n\#endif\n", $$1, $$1, $$2; \
	else printf "\#ifdef __NR_%s\n__NR_%s,\n\#endif\n", $$1, $$1 }'

$(BUILD)/launch/%.inc: launch/syscalls/%.txt | $(BUILD)
	mkdir -p $(BUILD)/launch
	$(launch_numbers) $< > $@.new
	mv $@.new $@

$(BUILD)/coppice-launch: $(launch_sources) $(wildcard launch/*.h place/*.h mounts/*.h lib/*.h) $(BUILD)/launch/allowed.inc $(BUILD)/launch/refused.inc | $(BUILD)
	$(CC) $(CFLAGS) -I$(BUILD)/launch -o $@.new $(launch_sources)
	mv $@.new $@
