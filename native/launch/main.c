#include "launch.h"

#include "../lib/processors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void) {
  fprintf(stderr, "usage: coppice-launch serve --bwrap FILE --agent FILE [--standbys N] [--v1 DIRECTORY]...\n"
                  "       coppice-launch lend PID | renew PID DIRECTORY | cover PID {FILE PLACE}... | dump PID COMMAND... |\n"
                  "       processors FILE LIST\n");
  return 2;
}

int main(int count, char **arguments) {
  static struct setup setup;
  const char *action = getenv("CRTOOLS_SCRIPT_ACTION");
  if (count == 1 && action) return hook(action);
  if (count == 3 && strcmp(arguments[1], "lend") == 0) return lend(atoi(arguments[2]));
  if (count == 4 && strcmp(arguments[1], "renew") == 0) return renew(atoi(arguments[2]), arguments[3]);
  if (count == 4 && strcmp(arguments[1], "processors") == 0) return move_to_processors(arguments[2], arguments[3]) ? 0 : 1;
  if (count > 3 && strcmp(arguments[1], "cover") == 0) return cover(atoi(arguments[2]), arguments + 3, (size_t)count - 3);
  if (count > 3 && strcmp(arguments[1], "dump") == 0) return dump(atoi(arguments[2]), arguments + 3, (size_t)count - 3);
  if (count < 2 || strcmp(arguments[1], "serve") != 0) return usage();
  for (int index = 2; index < count; index += 2) {
    const char *name = arguments[index], *value = index + 1 < count ? arguments[index + 1] : NULL;
    if (!value) return usage();
    if (strcmp(name, "--bwrap") == 0) setup.bwrap = value;
    else if (strcmp(name, "--agent") == 0) setup.agent = value;
    else if (strcmp(name, "--standbys") == 0) setup.standbys = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--v1") == 0 && setup.v1_count < hierarchies_limit) setup.v1_parents[setup.v1_count++] = value;
    else return usage();
  }
  if (!setup.bwrap || !setup.agent) return usage();
  return serve(&setup);
}
