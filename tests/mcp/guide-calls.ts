/** A call as the guide prints it. */
export interface GuideCall {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

const calls = (text: TemplateStringsArray): GuideCall[] => JSON.parse(`[${text.raw[0]}]`) as GuideCall[];

/** The calls of the guide for agents, letter by letter; only `a1b2c3d4-...` and `<losing-fork-n>` stand for ids,
 * and the directory of transfers and port 9090 of the host for those that a test may use. */
export const guide = {
  disposable: calls`
    { "tool": "workspace_create", "arguments": { "name": "sandbox-untrusted-script" } },
    { "tool": "file_write", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/tmp/script.py", "content": "import os\nprint(os.listdir('/'))\n" } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "python3 /tmp/script.py", "timeout_secs": 10 } },
    { "tool": "workspace_destroy", "arguments": { "workspace_id": "a1b2c3d4-..." } }`,
  internet: calls`
    { "tool": "workspace_create", "arguments": { "name": "sandbox-with-net", "allow_internet": true } },
    { "tool": "network_policy", "arguments": { "workspace_id": "a1b2c3d4-...", "allow_internet": true } }`,
  rollback: calls`
    { "tool": "workspace_create", "arguments": { "name": "dev-loop", "memory_mb": 1024 } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "apk add nodejs npm && mkdir -p /app && cd /app && npm init -y && npm install express", "timeout_secs": 120 } },
    { "tool": "snapshot_create", "arguments": { "workspace_id": "a1b2c3d4-...", "name": "after-npm-install" } },
    { "tool": "file_write", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app/index.js", "content": "const express = require('express');\nconst app = express();\napp.get('/', (req, res) => res.send('v1'));\napp.listen(3000);\n" } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "cd /app && node -e \"require('./index.js')\" 2>&1 || true", "timeout_secs": 5 } },
    { "tool": "snapshot_restore", "arguments": { "workspace_id": "a1b2c3d4-...", "snapshot_name": "after-npm-install" } },
    { "tool": "snapshot_create", "arguments": { "workspace_id": "a1b2c3d4-...", "name": "v2-working" } }`,
  hypotheses: calls`
    { "tool": "workspace_create", "arguments": { "name": "hypothesis-base" } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "apk add python3 py3-pip && pip install pytest", "timeout_secs": 60 } },
    { "tool": "file_write", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app/problem.py", "content": "def solve(data):\n    pass  # TODO\n" } },
    { "tool": "snapshot_create", "arguments": { "workspace_id": "a1b2c3d4-...", "name": "base-ready" } },
    { "tool": "workspace_fork", "arguments": { "workspace_id": "a1b2c3d4-...", "snapshot_name": "base-ready", "new_name": "approach-sorting" } },
    { "tool": "workspace_fork", "arguments": { "workspace_id": "a1b2c3d4-...", "snapshot_name": "base-ready", "new_name": "approach-hashmap" } },
    { "tool": "workspace_fork", "arguments": { "workspace_id": "a1b2c3d4-...", "snapshot_name": "base-ready", "new_name": "approach-dp" } },
    { "tool": "workspace_destroy", "arguments": { "workspace_id": "<losing-fork-1>" } },
    { "tool": "workspace_destroy", "arguments": { "workspace_id": "<losing-fork-2>" } }`,
  persistent: calls`
    { "tool": "workspace_create", "arguments": { "name": "rust-dev-env", "memory_mb": 2048, "disk_gb": 20 } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "apk add build-base curl && curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y", "timeout_secs": 300 } },
    { "tool": "snapshot_create", "arguments": { "workspace_id": "a1b2c3d4-...", "name": "toolchain-installed" } },
    { "tool": "workspace_list", "arguments": {} },
    { "tool": "workspace_start", "arguments": { "workspace_id": "a1b2c3d4-..." } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "source $HOME/.cargo/env && cargo build --release", "workdir": "/app", "timeout_secs": 120 } }`,
  editing: calls`
    { "tool": "file_read", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app/config.py" } },
    { "tool": "file_edit", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app/config.py", "old_string": "DEBUG = True", "new_string": "DEBUG = False" } },
    { "tool": "file_write", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app/config.py", "content": "DEBUG = False\nDATABASE_URL = 'sqlite:///db.sqlite3'\nSECRET_KEY = 'dev-only'\n", "mode": "0644" } },
    { "tool": "file_list", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/app" } }`,
  background: calls`
    { "tool": "exec_background", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "cd /app && cargo build --release 2>&1", "workdir": "/app" } },
    { "tool": "exec_poll", "arguments": { "workspace_id": "a1b2c3d4-...", "job_id": 1 } }`,
  transfer: calls`
    { "tool": "file_upload", "arguments": { "workspace_id": "a1b2c3d4-...", "host_path": "/var/lib/agentiso/transfers/dataset.csv", "guest_path": "/app/data/dataset.csv" } },
    { "tool": "file_download", "arguments": { "workspace_id": "a1b2c3d4-...", "guest_path": "/app/output/results.json", "host_path": "/var/lib/agentiso/transfers/results.json" } }`,
  ports: calls`
    { "tool": "port_forward", "arguments": { "workspace_id": "a1b2c3d4-...", "guest_port": 8080 } },
    { "tool": "port_forward", "arguments": { "workspace_id": "a1b2c3d4-...", "guest_port": 8080, "host_port": 9090 } },
    { "tool": "port_forward_remove", "arguments": { "workspace_id": "a1b2c3d4-...", "guest_port": 8080 } }`,
  git: calls`
    { "tool": "workspace_create", "arguments": { "name": "git-work", "allow_internet": true } },
    { "tool": "git_clone", "arguments": { "workspace_id": "a1b2c3d4-...", "url": "https://github.com/user/repo.git", "path": "/workspace/repo" } },
    { "tool": "file_edit", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/workspace/repo/README.md", "old_string": "# Old Title", "new_string": "# New Title" } },
    { "tool": "workspace_git_status", "arguments": { "workspace_id": "a1b2c3d4-...", "path": "/workspace/repo" } },
    { "tool": "exec", "arguments": { "workspace_id": "a1b2c3d4-...", "command": "cd /workspace/repo && git add -A && git commit -m 'Update title' && git push", "timeout_secs": 30 } }`,
  sizes: calls`
    { "tool": "snapshot_list", "arguments": { "workspace_id": "a1b2c3d4-..." } },
    { "tool": "snapshot_diff", "arguments": { "workspace_id": "a1b2c3d4-...", "snapshot_name": "after-install" } }`,
} as const;
