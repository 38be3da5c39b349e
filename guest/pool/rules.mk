PROGRAMS += $(BUILD)/coppice-pool

$(BUILD)/coppice-pool: $(wildcard pool/*.c) pool/pool.h | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(filter %.c,$^)
	mv $@.new $@
