#include <stdlib.h>
#include <string.h>

#include "log-lines.h"

static void add_json(struct buf *out, const char *key, struct json value) {
  buf_text(out, "\"%s\":%.*s", key, (int)(value.end - value.at), value.at);
}

static void add_maybe(struct buf *out, const char *key, const char *text) {
  buf_text(out, *text ? ",\"%s\":\"%s\"" : ",\"%s\":null", key, text);
}

/* The one that comes next; null where there is none. */
static void add_steps(struct buf *out, const char *key, const struct steps *steps) {
  const struct step *step = steps->count ? &steps->at[steps->count - 1] : NULL;
  buf_text(out, ",\"%s\":", key);
  if (step) buf_text(out, "{\"snapshot_id\":\"%s\",\"root_hash\":\"%s\"}", step->id, step->hash);
  else buf_text(out, "null");
}

void log_state(const struct log *log, struct buf *out) {
  buf_text(out, "\"snapshots\":[");
  for (size_t i = 0; i < log->snapshot_count; i++) {
    const struct snapshot *snapshot = &log->snapshots[i];
    buf_text(out, i ? ",{" : "{");
    add_json(out, "record", snapshot->record);
    buf_text(out, ",");
    add_json(out, "worktree_name", snapshot->worktree);
    buf_text(out, ",");
    add_json(out, "tags", snapshot->tags);
    buf_text(out, "}");
  }
  buf_text(out, "],\"worktrees\":[");
  for (size_t i = 0; i < log->worktree_count; i++) {
    const struct worktree *worktree = &log->worktrees[i];
    buf_text(out, i ? ",{" : "{");
    add_json(out, "name", worktree->name);
    buf_text(out, ",");
    add_json(out, "created_at", worktree->created_at);
    add_maybe(out, "base_snapshot_id", worktree->base);
    add_maybe(out, "head_snapshot_id", worktree->head);
    add_maybe(out, "latest_snapshot_id", worktree->latest);
    add_maybe(out, "saved_root_hash", worktree->saved_hash);
    add_steps(out, "undo", &worktree->undo);
    add_steps(out, "redo", &worktree->redo);
    buf_text(out, "}");
  }
  buf_text(out, "],\"pins\":{");
  for (size_t i = 0; i < log->pin_count; i++) {
    buf_text(out, i ? "," : "");
    add_json(out, log->pins[i].id, log->pins[i].reason);
  }
  buf_text(out, "},\"collection\":");
  struct json plan, pid;
  if (log->collection.at && json_field(log->collection, "plan_id", &plan) && json_field(log->collection, "pid", &pid)) {
    buf_text(out, "{");
    add_json(out, "planId", plan);
    buf_text(out, ",");
    add_json(out, "pid", pid);
    buf_text(out, "}");
  } else buf_text(out, "null");
}
