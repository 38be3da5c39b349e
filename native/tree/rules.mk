PROGRAMS += $(BUILD)/coppice-tree
TREE_SOURCES := $(wildcard tree/*.c) lib/hash.c lib/write.c

$(BUILD)/coppice-tree: $(TREE_SOURCES) $(wildcard tree/*.h lib/*.h) $(BLAKE3_LIBRARY) | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(TREE_SOURCES) $(BLAKE3_LIBRARY) && mv $@.new $@
