PROGRAMS += $(BUILD)/coppice-layer

$(BUILD)/coppice-layer: $(wildcard layer/*.c) layer/layer.h agent/tar.h | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^)
	mv $@.new $@
