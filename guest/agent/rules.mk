AGENT_SOURCES := $(wildcard agent/*.c)
PROGRAMS += $(BUILD)/coppice-agent

# With musl: a program that is linked with glibc asks the processor for its features before it does anything, each question leaves
# a virtual machine, and that takes longer than all else in the start of an agent. The headers of the kernel are the machine's.
AGENT_CC ?= musl-gcc -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch)

# Linked under another name first: whoever runs the agent meanwhile has the old file or the new one.
$(BUILD)/coppice-agent: $(AGENT_SOURCES) $(wildcard agent/*.h) agent/rules.mk | $(BUILD)
	$(AGENT_CC) $(CFLAGS) -D_GNU_SOURCE -o $@.new $(AGENT_SOURCES)
	mv -f $@.new $@
