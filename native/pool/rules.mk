PROGRAMS += $(BUILD)/coppice-pool

$(BUILD)/coppice-pool: $(wildcard pool/*.c) tree/blake3.c pool/pool.h tree/blake3.h | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(filter %.c,$^)
	mv $@.new $@
