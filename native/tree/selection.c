#include "selection.h"

#include <string.h>

int selected(const struct selection *selection, const char *path, size_t len) {
  if (!selection->count) return INSIDE;
  int best = OUTSIDE;
  for (size_t i = 0; i < selection->count; i++) {
    const char *chosen = selection->paths[i];
    const size_t chosen_len = strlen(chosen);
    if (len >= chosen_len && memcmp(path, chosen, chosen_len) == 0 && (len == chosen_len || path[chosen_len] == '/' || !chosen_len))
      return INSIDE;
    if (len < chosen_len && memcmp(path, chosen, len) == 0 && (len == 0 || chosen[len] == '/')) best = ON_THE_WAY;
  }
  return best;
}
