PROGRAMS += $(BUILD)/coppice-relay
relay_sources := $(wildcard relay/*.c)

$(BUILD)/coppice-relay: $(relay_sources) relay/relay.h | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(relay_sources)
	mv $@.new $@
