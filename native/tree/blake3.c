#include "blake3.h"

#include <stdlib.h>
#include <string.h>

typedef uint32_t lanes __attribute__((vector_size(32)));

#define LANES 8
#define CHUNK 1024
#define BLOCK 64
#define CHUNKS_PER_BLOCK (BLAKE3_BLOCK / CHUNK)

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

#if defined(__x86_64__)
#define FAST_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define FAST_CLONES
#endif

static const uint32_t IV[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* The message permutation applied 0 to 6 times. */
static const uint8_t SCHEDULE[7][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8},
    {3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1}, {10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6},
    {12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4}, {9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7},
    {11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13}};

static inline uint32_t load32(const uint8_t *bytes) {
  uint32_t word;
  memcpy(&word, bytes, sizeof word);
  return word;
}

#define ROTATE(x, n) (((x) >> (n)) | ((x) << (32 - (n))))
#define MIX(v, a, b, c, d, x, y)                                                                                     \
  do {                                                                                                               \
    v[a] = v[a] + v[b] + (x);                                                                                        \
    v[d] = ROTATE(v[d] ^ v[a], 16);                                                                                  \
    v[c] = v[c] + v[d];                                                                                              \
    v[b] = ROTATE(v[b] ^ v[c], 12);                                                                                  \
    v[a] = v[a] + v[b] + (y);                                                                                        \
    v[d] = ROTATE(v[d] ^ v[a], 8);                                                                                   \
    v[c] = v[c] + v[d];                                                                                              \
    v[b] = ROTATE(v[b] ^ v[c], 7);                                                                                   \
  } while (0)
#define ROUND(v, m, s)                                                                                               \
  do {                                                                                                               \
    MIX(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);                                                                           \
    MIX(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);                                                                           \
    MIX(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);                                                                          \
    MIX(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);                                                                          \
    MIX(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);                                                                          \
    MIX(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);                                                                        \
    MIX(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);                                                                         \
    MIX(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);                                                                         \
  } while (0)

static void compress(uint32_t cv[8], const uint8_t block[BLOCK], uint64_t counter, uint32_t len, uint32_t flags) {
  uint32_t m[16], v[16];
  for (int i = 0; i < 16; i++) m[i] = load32(block + 4 * i);
  memcpy(v, cv, 32);
  memcpy(v + 8, IV, 16);
  v[12] = (uint32_t)counter;
  v[13] = (uint32_t)(counter >> 32);
  v[14] = len;
  v[15] = flags;
  for (int r = 0; r < 7; r++) ROUND(v, m, SCHEDULE[r]);
  for (int i = 0; i < 8; i++) cv[i] = v[i] ^ v[i + 8];
}

/* Eight rows of eight words become eight columns. */
static inline __attribute__((always_inline)) void transpose(lanes r[8]) {
  const lanes low = {0, 8, 1, 9, 4, 12, 5, 13}, high = {2, 10, 3, 11, 6, 14, 7, 15};
  const lanes low2 = {0, 1, 8, 9, 4, 5, 12, 13}, high2 = {2, 3, 10, 11, 6, 7, 14, 15};
  const lanes left = {0, 1, 2, 3, 8, 9, 10, 11}, right = {4, 5, 6, 7, 12, 13, 14, 15};
  lanes a[8], b[8];
  for (int i = 0; i < 4; i++) {
    a[2 * i] = __builtin_shuffle(r[2 * i], r[2 * i + 1], low);
    a[2 * i + 1] = __builtin_shuffle(r[2 * i], r[2 * i + 1], high);
  }
  for (int i = 0; i < 2; i++) {
    b[4 * i] = __builtin_shuffle(a[4 * i], a[4 * i + 2], low2);
    b[4 * i + 1] = __builtin_shuffle(a[4 * i], a[4 * i + 2], high2);
    b[4 * i + 2] = __builtin_shuffle(a[4 * i + 1], a[4 * i + 3], low2);
    b[4 * i + 3] = __builtin_shuffle(a[4 * i + 1], a[4 * i + 3], high2);
  }
  for (int i = 0; i < 4; i++) {
    r[i] = __builtin_shuffle(b[i], b[i + 4], left);
    r[i + 4] = __builtin_shuffle(b[i], b[i + 4], right);
  }
}

/* Hashes eight inputs of `blocks` whole blocks each, every one from the IV, to eight chaining values. */
FAST_CLONES static void hash_lanes(const uint8_t *const inputs[LANES], unsigned blocks, uint64_t counter, int counts,
                                   uint32_t flags, uint32_t first, uint32_t last, uint8_t *out) {
  lanes cv[8], low, high;
  for (int i = 0; i < 8; i++) cv[i] = (lanes){0} + IV[i];
  for (int lane = 0; lane < LANES; lane++) {
    const uint64_t c = counter + (counts ? (uint64_t)lane : 0);
    low[lane] = (uint32_t)c;
    high[lane] = (uint32_t)(c >> 32);
  }
  for (unsigned block = 0; block < blocks; block++) {
    lanes m[16], v[16];
    for (int half = 0; half < 2; half++) {
      for (int lane = 0; lane < LANES; lane++)
        memcpy(&m[8 * half + lane], inputs[lane] + block * BLOCK + 32 * half, sizeof(lanes));
      transpose(m + 8 * half);
    }
    for (int i = 0; i < 8; i++) v[i] = cv[i];
    for (int i = 0; i < 4; i++) v[8 + i] = (lanes){0} + IV[i];
    v[12] = low;
    v[13] = high;
    v[14] = (lanes){0} + (uint32_t)BLOCK;
    v[15] = (lanes){0} + (flags | (block == 0 ? first : 0) | (block + 1 == blocks ? last : 0));
#pragma GCC unroll 7
    for (int r = 0; r < 7; r++) ROUND(v, m, SCHEDULE[r]);
    for (int i = 0; i < 8; i++) cv[i] = v[i] ^ v[i + 8];
  }
  transpose(cv);
  for (int lane = 0; lane < LANES; lane++) memcpy(out + 32 * lane, &cv[lane], 32);
}

static void hash_group(const uint8_t *data, unsigned count, size_t stride, unsigned blocks, uint64_t counter, int counts,
                       uint32_t flags, uint32_t first, uint32_t last, uint8_t *out) {
  for (unsigned done = 0; done < count; done += LANES) {
    const unsigned here = count - done < LANES ? count - done : LANES;
    const uint8_t *inputs[LANES];
    uint8_t all[LANES * 32];
    for (unsigned lane = 0; lane < LANES; lane++)
      inputs[lane] = data + stride * (done + (lane < here ? lane : 0));
    hash_lanes(inputs, blocks, counter + (counts ? done : 0), counts, flags, first, last, all);
    memcpy(out + 32 * done, all, 32 * here);
  }
}

static void chunk_tail(const uint8_t *data, size_t len, uint64_t counter, uint32_t extra, uint8_t out[HASH_LEN]) {
  uint32_t cv[8];
  memcpy(cv, IV, sizeof cv);
  size_t at = 0;
  do {
    uint8_t block[BLOCK] = {0};
    const size_t here = len - at < BLOCK ? len - at : BLOCK;
    if (here) memcpy(block, data + at, here);
    const int last = at + here >= len;
    compress(cv, block, counter, (uint32_t)here, (at == 0 ? CHUNK_START : 0) | (last ? CHUNK_END | extra : 0));
    at += here;
  } while (at < len);
  memcpy(out, cv, HASH_LEN);
}

static void parent(const uint8_t left[HASH_LEN], const uint8_t right[HASH_LEN], uint32_t extra, uint8_t out[HASH_LEN]) {
  uint8_t block[BLOCK];
  uint32_t cv[8];
  memcpy(block, left, 32);
  memcpy(block + 32, right, 32);
  memcpy(cv, IV, sizeof cv);
  compress(cv, block, 0, BLOCK, PARENT | extra);
  memcpy(out, cv, HASH_LEN);
}

/* Chaining values of a row of chunks, folded level by level until `until` or fewer remain. */
static unsigned fold(const uint8_t *data, size_t len, uint64_t counter, unsigned until, uint8_t cvs[][HASH_LEN]) {
  unsigned whole = (unsigned)(len / CHUNK), count = whole;
  if (whole) hash_group(data, whole, CHUNK, CHUNK / BLOCK, counter, 1, 0, CHUNK_START, CHUNK_END, cvs[0]);
  if (len % CHUNK) chunk_tail(data + (size_t)whole * CHUNK, len % CHUNK, counter + whole, 0, cvs[count++]);
  while (count > until) {
    uint8_t next[CHUNKS_PER_BLOCK / 2][HASH_LEN];
    const unsigned pairs = count / 2;
    hash_group(cvs[0], pairs, BLOCK, 1, 0, 0, PARENT, 0, 0, next[0]);
    memcpy(cvs, next, (size_t)pairs * HASH_LEN);
    if (count % 2) memmove(cvs[pairs], cvs[count - 1], HASH_LEN);
    count = pairs + count % 2;
  }
  return count;
}

void blake3_init(struct blake3 *state, uint8_t *buffer) {
  state->cv_count = 0;
  state->blocks = 0;
  state->fill = 0;
  state->buffer = buffer;
}

static void take_block(struct blake3 *state, const uint8_t *data) {
  uint8_t cvs[CHUNKS_PER_BLOCK][HASH_LEN];
  fold(data, BLAKE3_BLOCK, state->blocks * CHUNKS_PER_BLOCK, 1, cvs);
  state->blocks++;
  for (uint64_t total = state->blocks; total % 2 == 0; total /= 2) {
    state->cv_count--;
    parent(state->cvs[state->cv_count], cvs[0], 0, cvs[0]);
  }
  memcpy(state->cvs[state->cv_count++], cvs[0], HASH_LEN);
}

void blake3_update(struct blake3 *state, const void *data, size_t len) {
  const uint8_t *bytes = data;
  while (len) {
    if (state->fill == BLAKE3_BLOCK) {
      take_block(state, state->buffer);
      state->fill = 0;
    }
    while (state->fill == 0 && len > BLAKE3_BLOCK) {
      take_block(state, bytes);
      bytes += BLAKE3_BLOCK;
      len -= BLAKE3_BLOCK;
    }
    const size_t room = BLAKE3_BLOCK - state->fill, here = len < room ? len : room;
    memcpy(state->buffer + state->fill, bytes, here);
    state->fill += here;
    bytes += here;
    len -= here;
  }
}

void blake3_zeros(struct blake3 *state, uint64_t len) {
  static const uint8_t zeros[BLAKE3_BLOCK * 4];
  while (len) {
    const size_t here = len < sizeof zeros ? (size_t)len : sizeof zeros;
    blake3_update(state, zeros, here);
    len -= here;
  }
}

static void finish(const uint8_t *tail, size_t fill, struct blake3 *state, uint8_t out[HASH_LEN]) {
  const uint64_t counter = state->blocks * CHUNKS_PER_BLOCK;
  if (state->cv_count == 0 && fill <= CHUNK) {
    chunk_tail(tail, fill, 0, ROOT, out);
    return;
  }
  uint8_t cvs[CHUNKS_PER_BLOCK][HASH_LEN];
  fold(tail, fill, counter, state->cv_count ? 1 : 2, cvs);
  if (state->cv_count == 0) {
    parent(cvs[0], cvs[1], ROOT, out);
    return;
  }
  for (unsigned i = state->cv_count; i-- > 0;) parent(state->cvs[i], cvs[0], i == 0 ? ROOT : 0, cvs[0]);
  memcpy(out, cvs[0], HASH_LEN);
}

void blake3_finish(struct blake3 *state, uint8_t out[HASH_LEN]) { finish(state->buffer, state->fill, state, out); }

void blake3_hash(const void *data, size_t len, uint8_t out[HASH_LEN]) {
  const uint8_t *bytes = data;
  struct blake3 state;
  blake3_init(&state, NULL);
  while (len > BLAKE3_BLOCK) {
    take_block(&state, bytes);
    bytes += BLAKE3_BLOCK;
    len -= BLAKE3_BLOCK;
  }
  finish(bytes, len, &state, out);
}
