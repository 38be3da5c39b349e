PROGRAMS += $(BUILD)/coppice-tree
TREE_SOURCES := $(wildcard tree/*.c)

$(BUILD)/coppice-tree: $(TREE_SOURCES) $(wildcard tree/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(TREE_SOURCES) && mv $@.new $@
