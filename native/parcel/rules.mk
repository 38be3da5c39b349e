PROGRAMS += $(BUILD)/coppice-parcel

$(BUILD)/coppice-parcel: $(wildcard parcel/*.c) lib/stop.c $(wildcard parcel/*.h lib/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^)
	mv $@.new $@
