PROGRAMS += $(BUILD)/coppice-pool

$(BUILD)/coppice-pool: $(wildcard pool/*.c) lib/descent.c lib/hash.c lib/remove.c lib/write.c pool/pool.h $(wildcard lib/*.h) $(BLAKE3_LIBRARY) | $(BUILD)
	$(CC) $(CFLAGS) -pthread -o $@.new $(filter %.c,$^) $(BLAKE3_LIBRARY)
	mv $@.new $@
