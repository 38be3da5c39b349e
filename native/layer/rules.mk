PROGRAMS += $(BUILD)/coppice-layer

$(BUILD)/coppice-layer: $(wildcard layer/*.c) lib/stop.c lib/write.c $(wildcard layer/*.h lib/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^)
	mv $@.new $@
