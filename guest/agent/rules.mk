AGENT_SOURCES := $(wildcard agent/*.c)
PROGRAMS += $(BUILD)/coppice-agent

# Linked under another name first: whoever runs the agent meanwhile has the old file or the new one.
$(BUILD)/coppice-agent: $(AGENT_SOURCES) $(wildcard agent/*.h) agent/rules.mk | $(BUILD)
	$(CC) $(CFLAGS) -D_GNU_SOURCE -o $@.new $(AGENT_SOURCES)
	mv -f $@.new $@
