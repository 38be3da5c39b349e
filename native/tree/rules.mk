PROGRAMS += $(BUILD)/coppice-tree
TREE_SOURCES := $(wildcard tree/*.c) lib/write.c

$(BUILD)/coppice-tree: $(TREE_SOURCES) $(wildcard tree/*.h lib/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(TREE_SOURCES) && mv $@.new $@
