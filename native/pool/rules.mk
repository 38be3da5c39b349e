PROGRAMS += $(BUILD)/coppice-pool

$(BUILD)/coppice-pool: $(wildcard pool/*.c) tree/blake3.c lib/descent.c lib/remove.c lib/write.c pool/pool.h tree/blake3.h $(wildcard lib/*.h) | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(filter %.c,$^)
	mv $@.new $@
