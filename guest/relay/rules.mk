PROGRAMS += $(BUILD)/coppice-relay
relay_sources := $(wildcard relay/*.c) place/place.c

$(BUILD)/coppice-relay: $(relay_sources) relay/relay.h place/place.h | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(relay_sources)
	mv $@.new $@
