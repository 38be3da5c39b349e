#include "agent.h"
static void no(struct channel *channel) { channel_fail(channel, "unsupported", 0, "not there yet"); }
#define STUB(name) void name(struct channel *channel, struct reader *body) { (void)body; no(channel); }
STUB(terminal_open) STUB(terminal_list) STUB(terminal_attach) STUB(terminal_resize) STUB(terminal_signal)
STUB(tree_list) STUB(tree_remove) STUB(tree_watch) STUB(tree_pack) STUB(tree_unpack) STUB(tree_sync) STUB(dial_open)
