AGENT_SOURCES := $(wildcard agent/*.c) lib/descent.c lib/remove.c lib/write.c
PROGRAMS += $(BUILD)/coppice-agent

ifdef SANITIZE
AGENT_BUILD = $(CC) $(CFLAGS) -o $@.new $(AGENT_SOURCES)
else
# With musl: a program that is linked with glibc asks the processor for its features before it does anything, each question leaves
# a virtual machine, and that takes longer than all else in the start of an agent. The headers of the kernel are the machine's.
AGENT_CC ?= musl-gcc -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch)

# The wrapper does not know -static-pie: this is what it stands for. musl has no checked functions for _FORTIFY_SOURCE to call.
MUSL := $(dir $(firstword $(shell $(AGENT_CC) -v -x c -o /dev/null /dev/null 2>&1 | grep -o '[^ ]*/Scrt1\.o')))
# Its macros for control messages and terminals change signs.
AGENT_FLAGS := -Wno-sign-conversion -static -nostartfiles $(filter-out -static-pie $(FORTIFY),$(CFLAGS)) -Wl,-pie,--no-dynamic-linker,-z,text
AGENT_BUILD = $(AGENT_CC) $(AGENT_FLAGS) -o $@.new $(MUSL)rcrt1.o $(MUSL)crti.o \
	$(shell $(CC) -print-file-name=crtbeginS.o) $(AGENT_SOURCES) $(shell $(CC) -print-file-name=crtendS.o) $(MUSL)crtn.o
endif

# Linked under another name first: whoever runs the agent meanwhile has the old file or the new one.
$(BUILD)/coppice-agent: $(AGENT_SOURCES) $(wildcard agent/*.h lib/*.h) agent/rules.mk | $(BUILD)
	$(AGENT_BUILD)
	mv -f $@.new $@
