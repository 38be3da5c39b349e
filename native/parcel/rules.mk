PROGRAMS += $(BUILD)/coppice-parcel

$(BUILD)/coppice-parcel: $(wildcard parcel/*.c) parcel/parcel.h | $(BUILD)
	$(CC) $(CFLAGS) -o $@.new $(filter %.c,$^)
	mv $@.new $@
