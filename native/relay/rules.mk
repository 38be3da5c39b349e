PROGRAMS += $(BUILD)/coppice-relay
relay_sources := $(wildcard relay/*.c place/*.c mounts/*.c) lib/processors.c

$(BUILD)/coppice-relay: $(relay_sources) $(wildcard relay/*.h place/*.h mounts/*.h lib/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(relay_sources)
	mv $@.new $@
