"""The shapes of requests and answers. Written by scripts/generate-python-client.ts; changes here are lost."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class NetworkPolicy(TypedDict):
    allow_internet: bool
    allow_inter_sandbox: bool
    allowed_ports: list[int]
    allow: list[str]
    deny: list[str]
    allow_host_ports: list[int]
    ask: bool


class PortForward(TypedDict):
    guest_port: int
    host_port: int
    url: str


class ListSandboxesResultItemMount(TypedDict):
    host_path: str
    guest_path: str
    read_only: bool


class Parent(TypedDict):
    snapshot_id: str
    sandbox_id: str | None


class SandboxInfo(TypedDict):
    id: str
    name: str
    project: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]
    failure: str | None
    image: str
    driver: Literal["container", "gvisor"]
    cpus: float
    memory_mb: float
    disk_mb: float
    pids: float
    env_names: list[str]
    labels: dict[str, str]
    network: NetworkPolicy
    address: str | None
    hostname: str
    forwards: list[PortForward]
    idle_timeout_s: float | None
    idle_action: Literal["pause", "stop"]
    max_lifetime_s: float | None
    mounts: list[ListSandboxesResultItemMount]
    parent: Parent | None
    created_at: str
    started_at: str | None


class ListSandboxesResult(TypedDict):
    items: list[SandboxInfo]


class GetSandboxResultUsage1(TypedDict):
    memory_bytes: float
    cpu_usec: float
    pids: float
    oom_kills: float
    disk_referenced_bytes: float
    disk_used_bytes: float


class GetSandboxResultSnapshots(TypedDict):
    count: float
    max_count: float
    held_bytes: float | None
    max_bytes: float


class SandboxDetail(TypedDict):
    id: str
    name: str
    project: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]
    failure: str | None
    image: str
    driver: Literal["container", "gvisor"]
    cpus: float
    memory_mb: float
    disk_mb: float
    pids: float
    env_names: list[str]
    labels: dict[str, str]
    network: NetworkPolicy
    address: str | None
    hostname: str
    forwards: list[PortForward]
    idle_timeout_s: float | None
    idle_action: Literal["pause", "stop"]
    max_lifetime_s: float | None
    mounts: list[ListSandboxesResultItemMount]
    parent: Parent | None
    created_at: str
    started_at: str | None
    usage: GetSandboxResultUsage1 | None
    snapshots: GetSandboxResultSnapshots


class CreateSandboxBodyNetwork(TypedDict):
    allow_internet: NotRequired[bool]
    allow_inter_sandbox: NotRequired[bool]
    allowed_ports: NotRequired[list[int]]
    allow: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    allow_host_ports: NotRequired[list[int]]
    ask: NotRequired[bool]


class CreateSandboxBodyMount(TypedDict):
    host_path: str
    guest_path: str
    read_only: NotRequired[bool]


CreateSandboxBody = TypedDict(
    "CreateSandboxBody",
    {
        "name": "NotRequired[str]",
        "project": "NotRequired[str]",
        "image": "NotRequired[str]",
        "from": "NotRequired[str]",
        "driver": "NotRequired[Literal['container', 'gvisor']]",
        "cpus": "NotRequired[float]",
        "memory_mb": "NotRequired[int]",
        "disk_mb": "NotRequired[int]",
        "pids": "NotRequired[int]",
        "env": "NotRequired[dict[str, str]]",
        "labels": "NotRequired[dict[str, str]]",
        "network": "NotRequired[CreateSandboxBodyNetwork]",
        "idle_timeout_s": "NotRequired[int | None]",
        "idle_action": "NotRequired[Literal['pause', 'stop']]",
        "max_lifetime_s": "NotRequired[int | None]",
        "mounts": "NotRequired[list[CreateSandboxBodyMount]]",
    },
)


class CreatedSandbox(TypedDict):
    id: str
    name: str
    project: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]
    failure: str | None
    image: str
    driver: Literal["container", "gvisor"]
    cpus: float
    memory_mb: float
    disk_mb: float
    pids: float
    env_names: list[str]
    labels: dict[str, str]
    network: NetworkPolicy
    address: str | None
    hostname: str
    forwards: list[PortForward]
    idle_timeout_s: float | None
    idle_action: Literal["pause", "stop"]
    max_lifetime_s: float | None
    mounts: list[ListSandboxesResultItemMount]
    parent: Parent | None
    created_at: str
    started_at: str | None
    token: str
    memory_notice: str | None
    boot_ms: float
    from_pool: bool


class Snapshot(TypedDict):
    id: str
    name: str
    note: str
    tags: list[str]
    sandbox_id: str
    sandbox_name: str
    project: str
    parent_id: str | None
    image: str
    driver: str
    engine: str
    automatic: bool
    has_memory: bool
    memory_bytes: float | None
    memory_used_bytes: float | None
    pause_ms: float | None
    referenced_bytes: float | None
    used_bytes: float | None
    created_at: str


class CreateSnapshotBody(TypedDict):
    name: NotRequired[str]
    note: NotRequired[str]
    tags: NotRequired[list[str]]
    memory: NotRequired[bool]


class TakenSnapshot(TypedDict):
    id: str
    name: str
    note: str
    tags: list[str]
    sandbox_id: str
    sandbox_name: str
    project: str
    parent_id: str | None
    image: str
    driver: str
    engine: str
    automatic: bool
    has_memory: bool
    memory_bytes: float | None
    memory_used_bytes: float | None
    pause_ms: float | None
    referenced_bytes: float | None
    used_bytes: float | None
    created_at: str
    left_out: list[str]


class FileEntry(TypedDict):
    path: str
    name: str
    kind: Literal["file", "directory", "symlink", "fifo", "socket", "device"]
    size_bytes: float
    mode: str
    uid: float
    gid: float
    modified_at: str
    target: str | None


class GetJobResultExit1(TypedDict):
    exit_code: float | None
    signal: float | None
    timed_out: bool
    ran_out: NotRequired[Literal["memory", "processes", "disk"]]


class Job(TypedDict):
    id: float
    pid: float
    command: list[str]
    started_at: str
    running: bool
    exit: GetJobResultExit1 | None
    log_bytes: float
    log_start: float


class ForkSandboxBody(TypedDict):
    name: NotRequired[str]
    name_prefix: NotRequired[str]
    count: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    env: NotRequired[dict[str, str]]
    snapshot: NotRequired[str]
    memory: NotRequired[bool]


class ForkSandboxResultFailure(TypedDict):
    index: float
    name: str
    code: str
    message: str


class Forked(TypedDict):
    snapshot_id: str
    forks: list[CreatedSandbox]
    left_out: list[str]
    failures: list[ForkSandboxResultFailure]


class Health(TypedDict):
    status: Literal["ok", "degraded"]
    problems: list[str]
    version: str
    uptime_s: float
    sandboxes: float


class DoctorResultDriversValue(TypedDict):
    usable: bool
    detail: str


class DoctorResultFinding(TypedDict):
    severity: Literal["error", "warning", "info"]
    check: str
    message: str
    fix: str


class DoctorResult(TypedDict):
    healthy: bool
    engine: str
    driver: str
    drivers: dict[str, DoctorResultDriversValue]
    findings: list[DoctorResultFinding]


class Event(TypedDict):
    seq: float
    at: str
    type: str
    sandbox_id: str | None
    data: dict[str, Any]


class ListEventsResult(TypedDict):
    events: list[Event]
    last_seq: float


class ListTokensResultItemQuota1(TypedDict):
    sandboxes: int | None
    memory_mb: int | None
    disk_mb: int | None
    snapshots: int | None


class ListTokensResultItem(TypedDict):
    id: str
    name: str
    scope: str
    role: Literal["full", "read"]
    person: str | None
    quota: ListTokensResultItemQuota1 | None
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class ListTokensResult(TypedDict):
    items: list[ListTokensResultItem]


class CreateTokenBodyQuota(TypedDict):
    sandboxes: NotRequired[int | None]
    memory_mb: NotRequired[int | None]
    disk_mb: NotRequired[int | None]
    snapshots: NotRequired[int | None]


class CreateTokenBody(TypedDict):
    name: str
    scope: NotRequired[str]
    role: NotRequired[Literal["full", "read"]]
    person: NotRequired[str]
    quota: NotRequired[CreateTokenBodyQuota]
    expires_in_s: NotRequired[int]


class CreateTokenResult(TypedDict):
    id: str
    name: str
    scope: str
    role: Literal["full", "read"]
    person: str | None
    quota: ListTokensResultItemQuota1 | None
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    secret: str


class UpdateSandboxBody(TypedDict):
    name: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    env: NotRequired[dict[str, str | None]]
    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_mb: NotRequired[int]
    pids: NotRequired[int]
    idle_timeout_s: NotRequired[int | None]
    idle_action: NotRequired[Literal["pause", "stop"]]
    max_lifetime_s: NotRequired[int | None]


class DestroySandboxResultSnapshot(TypedDict):
    id: str
    name: str
    reason: str


class DestroySandboxResult(TypedDict):
    snapshots: list[DestroySandboxResultSnapshot]


class ListUsageResultItem(TypedDict):
    id: str
    name: str
    project: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]
    cpus: float
    memory_mb: float
    disk_mb: float
    pids: float
    idle_s: float | None
    usage: GetSandboxResultUsage1 | None


class ListUsageResult(TypedDict):
    items: list[ListUsageResultItem]


class StopSandboxBody(TypedDict):
    grace_s: NotRequired[float]


class PauseSandboxBody(TypedDict):
    keep: NotRequired[Literal["memory", "disk"]]


class ExecBody(TypedDict):
    command: str | list[str]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]
    user: NotRequired[str]
    timeout_ms: NotRequired[int]
    stdin: NotRequired[str]
    stdin_base64: NotRequired[str]
    max_output_bytes: NotRequired[int]


class ExecResult(TypedDict):
    exit_code: float | None
    signal: float | None
    timed_out: bool
    ran_out: NotRequired[Literal["memory", "processes", "disk"]]
    stdout: str
    stderr: str
    binary: bool
    stdout_base64: str | None
    stderr_base64: str | None
    stdout_cut_bytes: float
    stderr_cut_bytes: float
    duration_ms: float


class StartJobBody(TypedDict):
    command: str | list[str]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]
    user: NotRequired[str]
    timeout_ms: NotRequired[int]
    keep_awake: NotRequired[bool]


class ListJobsResult(TypedDict):
    items: list[Job]


class ReadJobResultEntry(TypedDict):
    stream: Literal["stdout", "stderr"]
    text: str
    base64: str | None


class ReadJobResult(TypedDict):
    entries: list[ReadJobResultEntry]
    cursor: float
    dropped_bytes: float
    running: bool
    exit: GetJobResultExit1 | None


class SignalJobBody(TypedDict):
    signal: NotRequired[int]


class OpenTerminalBody(TypedDict):
    command: NotRequired[str | list[str]]
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]
    user: NotRequired[str]
    cols: NotRequired[int]
    rows: NotRequired[int]


class OpenTerminalResult(TypedDict):
    id: float
    pid: float
    command: list[str]
    cols: float
    rows: float
    running: bool
    exit: GetJobResultExit1 | None


class ListTerminalsResult(TypedDict):
    items: list[OpenTerminalResult]


class ResizeTerminalBody(TypedDict):
    cols: int
    rows: int


class WriteFileResult(TypedDict):
    path: str
    bytes: float


class EditFileBody(TypedDict):
    path: str
    old_string: str
    new_string: str
    replace_all: NotRequired[bool]


class EditFileResult(TypedDict):
    path: str
    replacements: float
    bytes: float


class ListFilesResult(TypedDict):
    entries: list[FileEntry]
    truncated: bool


MoveFileBody = TypedDict(
    "MoveFileBody",
    {
        "from": "str",
        "to": "str",
    },
)


class MakeDirectoryBody(TypedDict):
    path: str
    parents: NotRequired[bool]
    mode: NotRequired[str]


class UploadArchiveResult(TypedDict):
    path: str
    files: float
    bytes: float


class ListSandboxSnapshotsResult(TypedDict):
    items: list[Snapshot]


class UpdateSnapshotBody(TypedDict):
    name: NotRequired[str]
    note: NotRequired[str]


class ExportSnapshotBody(TypedDict):
    memory: NotRequired[bool]
    image: NotRequired[bool]
    env: NotRequired[bool]
    base_image: NotRequired[str]
    have: NotRequired[list[str]]


class ImportContentsResult(TypedDict):
    have: list[str]


class ImportSnapshotResult(TypedDict):
    id: str
    name: str
    note: str
    tags: list[str]
    sandbox_id: str
    sandbox_name: str
    project: str
    parent_id: str | None
    image: str
    driver: str
    engine: str
    automatic: bool
    has_memory: bool
    memory_bytes: float | None
    memory_used_bytes: float | None
    pause_ms: float | None
    referenced_bytes: float | None
    used_bytes: float | None
    created_at: str
    image_added: bool
    memory_left_out: bool
    missing_env: list[str]
    host_ports_left_out: list[int]


class ListStraysResultItem(TypedDict):
    id: str
    kind: Literal["sandbox", "snapshot"]
    created_at: str


class ListStraysResult(TypedDict):
    items: list[ListStraysResultItem]


class KeepStrayBody(TypedDict):
    image: NotRequired[str]
    name: NotRequired[str]


class RestoreSandboxBody(TypedDict):
    snapshot: str
    discard: NotRequired[bool]


class RestoreSandboxResult(TypedDict):
    sandbox_id: str
    snapshot_id: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]
    with_memory: bool
    undo_snapshot_id: str | None


class ForkSnapshotBody(TypedDict):
    name: NotRequired[str]
    name_prefix: NotRequired[str]
    count: NotRequired[int]
    labels: NotRequired[dict[str, str]]
    env: NotRequired[dict[str, str]]


class DiffResultChange(TypedDict):
    path: str
    change: Literal["added", "removed", "modified", "mode"]
    kind: Literal["file", "directory", "symlink", "fifo", "socket", "device"]
    size_before: float | None
    size_after: float | None
    mode_before: str | None
    mode_after: str | None


class DiffResultSummary(TypedDict):
    added: float
    removed: float
    modified: float
    mode: float


Diff = TypedDict(
    "Diff",
    {
        "from": "str",
        "to": "str",
        "changes": "list[DiffResultChange]",
        "truncated": "bool",
        "summary": "DiffResultSummary",
        "left_out": "list[str]",
    },
)


class DiffFileResult(TypedDict):
    path: str
    directory: bool
    binary: bool
    unified: str
    truncated: bool


class DiffPatchResultMissing(TypedDict):
    path: str
    reason: Literal["binary", "too_large", "mode", "kind", "name"]


class DiffPatchResult(TypedDict):
    patch: str
    files: float
    missing: list[DiffPatchResultMissing]
    left_out: list[str]


MergeBody = TypedDict(
    "MergeBody",
    {
        "from": "str",
        "prefer": "NotRequired[Literal['ours', 'theirs']]",
        "choose": "NotRequired[dict[str, Literal['ours', 'theirs']]]",
        "path": "NotRequired[str | list[str]]",
        "exclude": "NotRequired[str | list[str]]",
        "dry_run": "NotRequired[bool]",
    },
)


class MergeResultConflict(TypedDict):
    path: str
    ours: Literal["added", "removed", "modified", "mode"]
    theirs: Literal["added", "removed", "modified", "mode"]


class MergeResultRepository(TypedDict):
    path: str
    commits: float


Merged = TypedDict(
    "Merged",
    {
        "into": "str",
        "from": "str",
        "base_snapshot_id": "str | None",
        "applied": "bool",
        "changes": "list[DiffResultChange]",
        "conflicts": "list[MergeResultConflict]",
        "truncated": "bool",
        "summary": "DiffResultSummary",
        "conflict_count": "float",
        "repositories": "list[MergeResultRepository]",
        "left_out": "list[str]",
        "undo_snapshot_id": "str | None",
    },
)


class LineageResultNodeRestored1(TypedDict):
    to: str
    left: str | None
    at: str


class LineageResultNode(TypedDict):
    kind: Literal["image", "sandbox", "snapshot"]
    id: str
    name: str
    parent: str | None
    grown_from: str | None
    merged: list[str]
    restored: LineageResultNodeRestored1 | None
    state: str | None
    automatic: bool
    has_memory: bool
    memory_bytes: float | None
    memory_used_bytes: float | None
    referenced_bytes: float | None
    used_bytes: float | None
    created_at: str


class LineageResult(TypedDict):
    nodes: list[LineageResultNode]


class GitStatusResult(TypedDict):
    branch: str | None
    ahead: float
    behind: float
    staged: list[str]
    modified: list[str]
    untracked: list[str]
    conflicted: list[str]
    dirty: bool


class GitDiffResult(TypedDict):
    diff: str
    truncated: bool
    stat: str


class GitCloneBody(TypedDict):
    url: str
    path: NotRequired[str]
    branch: NotRequired[str]
    depth: NotRequired[int]
    timeout_ms: NotRequired[int]


class GitCloneResult(TypedDict):
    path: str
    commit_sha: str | None
    url: str
    branch: str | None


class GitCommitBody(TypedDict):
    path: NotRequired[str]
    message: str
    all: NotRequired[bool]
    author_name: NotRequired[str]
    author_email: NotRequired[str]


class GitCommitResultCommit1(TypedDict):
    sha: str
    short_sha: str
    branch: str | None
    summary: str


class GitCommitResult(TypedDict):
    path: str
    commit: GitCommitResultCommit1 | None


class GitPushBody(TypedDict):
    path: NotRequired[str]
    remote: NotRequired[str]
    branch: NotRequired[str]
    force: NotRequired[bool]
    set_upstream: NotRequired[bool]
    timeout_ms: NotRequired[int]


class GitPushResult(TypedDict):
    remote: str
    branch: str
    output: str


MergeCommitsBody = TypedDict(
    "MergeCommitsBody",
    {
        "from": "list[str]",
        "strategy": "NotRequired[Literal['sequential', 'branch-per-source', 'cherry-pick']]",
        "message": "NotRequired[str]",
        "path": "NotRequired[str]",
    },
)


class MergeCommitsResultSource(TypedDict):
    sandbox_id: str
    name: str
    commits: float
    uncommitted_changes: bool


class MergeCommitsResultConflict(TypedDict):
    sandbox_id: str
    error: str
    files: list[str]


class MergeCommitsResult(TypedDict):
    success: bool
    strategy: Literal["sequential", "branch-per-source", "cherry-pick"]
    commits: float
    sources: list[MergeCommitsResultSource]
    conflicts: list[MergeCommitsResultConflict]


class ListRepositoriesResultItem(TypedDict):
    name: str
    kind: Literal["builtin", "github", "gitlab", "gitea"]
    default_branch: str
    clone_url: str
    url: str | None
    remote: str | None
    created_at: str


class ListRepositoriesResult(TypedDict):
    items: list[ListRepositoriesResultItem]


class CreateRepositoryBody(TypedDict):
    name: str
    kind: NotRequired[Literal["builtin", "github", "gitlab", "gitea"]]
    default_branch: NotRequired[str]
    remote: NotRequired[str]
    url: NotRequired[str]
    token: NotRequired[str]


class ExamineForgeResultStep(TypedDict):
    step: str
    ok: bool
    detail: str


class ExamineForgeResult(TypedDict):
    ok: bool
    steps: list[ExamineForgeResultStep]


class ListIssuesResultItem(TypedDict):
    id: str
    title: str
    body: str
    state: Literal["open", "closed"]
    type: Literal["feature", "bug", "refactor", "docs", "test", "chore"]
    critical: bool
    url: str


class ListIssuesResult(TypedDict):
    items: list[ListIssuesResultItem]


class CreateIssueBody(TypedDict):
    title: str
    body: NotRequired[str]
    type: NotRequired[Literal["feature", "bug", "refactor", "docs", "test", "chore"]]
    critical: NotRequired[bool]


class ListIssueCommentsResultItem(TypedDict):
    id: str
    body: str
    url: str


class ListIssueCommentsResult(TypedDict):
    items: list[ListIssueCommentsResultItem]


class CommentIssueBody(TypedDict):
    body: str


class ListPullsResultItem(TypedDict):
    number: float
    title: str
    body: str
    state: Literal["open", "closed", "merged"]
    head: str
    head_sha: str
    base: str
    draft: bool
    mergeable: bool | None
    merge_sha: str | None
    url: str


class ListPullsResult(TypedDict):
    items: list[ListPullsResultItem]


class CreatePullBody(TypedDict):
    head: str
    base: NotRequired[str]
    title: str
    body: NotRequired[str]
    draft: NotRequired[bool]


class MergePullBody(TypedDict):
    expected_head: str
    method: NotRequired[Literal["squash", "merge", "rebase"]]
    message: NotRequired[str]


class MergePullResult(TypedDict):
    merge_sha: str


class ListReviewsResultItem(TypedDict):
    id: str
    author: str
    state: Literal["approved", "changes_requested", "commented"]
    body: str
    sha: str


class ListReviewsResult(TypedDict):
    items: list[ListReviewsResultItem]


class ReviewPullBody(TypedDict):
    state: Literal["approved", "changes_requested", "commented"]
    body: NotRequired[str]


class ListChecksResultItem(TypedDict):
    name: str
    state: Literal["pending", "success", "failure"]
    description: str
    url: str | None


class ListChecksResult(TypedDict):
    items: list[ListChecksResultItem]


class ReportCheckBody(TypedDict):
    sha: str
    name: str
    state: Literal["pending", "success", "failure"]
    description: NotRequired[str]
    url: NotRequired[str]


class StartBranchBodyRun(TypedDict):
    task: str
    agent: NotRequired[str]
    command: NotRequired[str | list[str]]
    model: NotRequired[str]
    env: NotRequired[dict[str, str]]
    timeout_s: NotRequired[int]
    steps: NotRequired[Literal["tool", "turn", "none"]]
    step_memory: NotRequired[bool]


class StartBranchBody(TypedDict):
    repository: str
    ticket: str
    title: NotRequired[str]
    type: NotRequired[Literal["feature", "bug", "refactor", "docs", "test", "chore"]]
    critical: NotRequired[bool]
    base: NotRequired[str]
    image: NotRequired[str]
    network: NotRequired[CreateSandboxBodyNetwork]
    run: NotRequired[StartBranchBodyRun]


class StartBranchResult(TypedDict):
    success: bool
    repository: str
    branch_name: str
    ticket: str
    title: str
    state: Literal["starting", "started", "in_review", "needs_review", "merged"]
    base: str
    sha: str | None
    ahead_by: float
    behind_by: float
    sandbox_id: str | None
    run_id: str | None
    pr_number: float | None
    pr_url: str | None
    has_conflicts: bool
    checks: Literal["none", "pending", "failure", "success"]
    reviews: Literal["none", "approved", "changes_requested"]
    merge_sha: str | None
    error: str | None


class FinishBranchBody(TypedDict):
    repository: str
    branch: str
    message: NotRequired[str]


class MergeBranchBody(TypedDict):
    repository: str
    branch: str
    method: NotRequired[Literal["squash", "merge", "rebase"]]
    expected_head: NotRequired[str]
    keep_sandbox: NotRequired[bool]


class ListBranchesResult(TypedDict):
    items: list[StartBranchResult]


class GuardianStatusResultRuleWhen1(TypedDict):
    kind: Literal["loop"]
    times: int


class GuardianStatusResultRuleWhen2(TypedDict):
    kind: Literal["forbidden_path"]
    paths: list[str]


class GuardianStatusResultRuleWhen3(TypedDict):
    kind: Literal["forbidden_command"]
    commands: list[str]


class GuardianStatusResultRuleWhen4(TypedDict):
    kind: Literal["drift"]
    paths: list[str]


class GuardianStatusResultRuleWhen5(TypedDict):
    kind: Literal["error_rate"]
    errors: int
    of: int


class GuardianStatusResultRuleWhen6(TypedDict):
    kind: Literal["cost"]
    usd: float


class GuardianStatusResultRuleWhen7(TypedDict):
    kind: Literal["time"]
    minutes: float


class GuardianStatusResultRule(TypedDict):
    name: str
    when: GuardianStatusResultRuleWhen1 | GuardianStatusResultRuleWhen2 | GuardianStatusResultRuleWhen3 | GuardianStatusResultRuleWhen4 | GuardianStatusResultRuleWhen5 | GuardianStatusResultRuleWhen6 | GuardianStatusResultRuleWhen7
    action: Literal["remind", "refocus", "constrain", "pause", "stop", "rewind"]
    message: NotRequired[str]


class GuardianStatusResult(TypedDict):
    trouble: str | None
    rules: list[GuardianStatusResultRule]
    judge: str | None


class ConductorResultRun(TypedDict):
    run_id: str
    name: str
    priority: int
    task: str
    files: int


class ConductorResultDuplicate(TypedDict):
    runs: list[str]
    why: str


class ConductorResultConflict(TypedDict):
    runs: list[str]
    files: list[str]


class ConductorResult(TypedDict):
    runs: list[ConductorResultRun]
    duplicates: list[ConductorResultDuplicate]
    conflicts: list[ConductorResultConflict]


class InterveneBody(TypedDict):
    kind: Literal["remind", "refocus", "constrain", "pause", "stop", "rewind"]
    message: NotRequired[str]
    reason: str
    to: NotRequired[int]


class InterveneResultBefore(TypedDict):
    state: Literal["pending", "creating", "running", "completing", "completed", "failed"]
    paused: bool
    step: int
    seq: int


class InterveneResult(TypedDict):
    id: int
    run_id: str
    kind: Literal["remind", "refocus", "constrain", "pause", "stop", "rewind"]
    rule: str
    detail: str
    authority: str
    state: Literal["begun", "done", "failed", "reverted"]
    before: InterveneResultBefore
    after: InterveneResultBefore | None
    message_id: str | None
    error: str | None
    at: str
    reverted_by: str | None


class ListInterventionsResult(TypedDict):
    items: list[InterveneResult]


class GuardianDryRunBodyRuleWhen1(TypedDict):
    kind: Literal["loop"]
    times: NotRequired[int]


class GuardianDryRunBodyRule(TypedDict):
    name: str
    when: GuardianDryRunBodyRuleWhen1 | GuardianStatusResultRuleWhen2 | GuardianStatusResultRuleWhen3 | GuardianStatusResultRuleWhen4 | GuardianStatusResultRuleWhen5 | GuardianStatusResultRuleWhen6 | GuardianStatusResultRuleWhen7
    action: Literal["remind", "refocus", "constrain", "pause", "stop", "rewind"]
    message: NotRequired[str]


class GuardianDryRunBody(TypedDict):
    rules: NotRequired[list[GuardianDryRunBodyRule]]


class GuardianDryRunResultFinding(TypedDict):
    seq: int
    rule: str
    detail: str
    would: Literal["remind", "refocus", "constrain", "pause", "stop", "rewind"]


class GuardianDryRunResult(TypedDict):
    findings: list[GuardianDryRunResultFinding]
    events: int


class JudgeRunResult(TypedDict):
    status: Literal["scored", "unavailable"]
    score: float | None
    reason: str


class RunsHealthResultItemQuarantine1(TypedDict):
    reason: str
    by: str
    at: str
    evidence: str | None


class RunsHealthResultItem(TypedDict):
    run_id: str
    name: str
    health: Literal["well", "degraded", "stuck", "failed"]
    reason: str
    last_heartbeat_age_ms: int | None
    missed: int
    last_event_age_ms: int
    open_model_calls: int
    restarts: int
    quarantine: RunsHealthResultItemQuarantine1 | None


class RunsHealthResult(TypedDict):
    items: list[RunsHealthResultItem]


class QuarantineRunBody(TypedDict):
    reason: str


class PrepareSandboxBody(TypedDict):
    name: str
    project: NotRequired[str]
    image: NotRequired[str]
    git_url: NotRequired[str]
    commands: NotRequired[list[str]]
    timeout_ms: NotRequired[int]
    allow_internet: NotRequired[bool]


class RunSwarmBodyTask(TypedDict):
    name: str
    command: str
    cwd: NotRequired[str]
    env: NotRequired[dict[str, str]]


class RunSwarmBodyNote(TypedDict):
    kind: Literal["search", "read"]
    query: str


class RunSwarmBody(TypedDict):
    snapshot: NotRequired[str]
    tasks: list[RunSwarmBodyTask]
    env: NotRequired[dict[str, str]]
    merge_into: NotRequired[str]
    merge_strategy: NotRequired[Literal["sequential", "branch-per-source", "cherry-pick"]]
    merge_path: NotRequired[str]
    parallel: NotRequired[int]
    timeout_ms: NotRequired[int]
    keep_workers: NotRequired[bool]
    allow_internet: NotRequired[bool]
    shared_context: NotRequired[str]
    notes: NotRequired[list[RunSwarmBodyNote]]
    max_output_bytes: NotRequired[int]


class ListSessionsResultItemSandboxe(TypedDict):
    id: str
    name: str
    state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"]


class ListSessionsResultItem(TypedDict):
    name: str
    live: bool
    sandboxes: list[ListSessionsResultItemSandboxe]
    limit: float


class ListSessionsResult(TypedDict):
    items: list[ListSessionsResultItem]


class AdoptSandboxBody(TypedDict):
    session: str
    force: NotRequired[bool]


class AdoptSandboxResult(TypedDict):
    sandbox: SandboxInfo
    adopted: bool
    forced: bool


class ListNotesResultItem(TypedDict):
    path: str
    is_dir: bool
    size: float
    modified: str


class ListNotesResult(TypedDict):
    items: list[ListNotesResultItem]


class ReadNoteResult(TypedDict):
    path: str
    content: str
    frontmatter: NotRequired[dict[str, Any]]


class WriteNoteBody(TypedDict):
    path: str
    content: str
    mode: NotRequired[Literal["overwrite", "append", "prepend"]]


MoveNoteBody = TypedDict(
    "MoveNoteBody",
    {
        "from": "str",
        "to": "str",
        "overwrite": "NotRequired[bool]",
    },
)


class ReplaceInNoteBody(TypedDict):
    path: str
    search: str
    replace: str
    regex: NotRequired[bool]


class ReplaceInNoteResult(TypedDict):
    path: str
    replacements: float


class SearchNotesResultResult(TypedDict):
    path: str
    line_number: float
    line: str
    context: str


class SearchNotesResult(TypedDict):
    results: list[SearchNotesResultResult]
    truncated: bool


class ChangeFrontmatterBody(TypedDict):
    path: str
    set: NotRequired[dict[str, str | float | bool | None | list[str]]]
    delete: NotRequired[list[str]]
    add_tags: NotRequired[list[str]]
    remove_tags: NotRequired[list[str]]


class ChangeFrontmatterResult(TypedDict):
    path: str
    frontmatter: dict[str, Any]
    tags: list[str]


class ListNoteTagsResult(TypedDict):
    tags: list[str]


class SetCallerBody(TypedDict):
    run: NotRequired[str]
    agent: NotRequired[str]
    project: NotRequired[str]


class SetSecretBodyUse1Git(TypedDict):
    repository: str
    push: NotRequired[list[str]]


class SetSecretBodyUse1Place1(TypedDict):
    kind: Literal["header"]
    name: str
    format: NotRequired[str]


class SetSecretBodyUse1Place2(TypedDict):
    kind: Literal["basic"]
    user: str


class SetSecretBodyUse1Place3(TypedDict):
    kind: Literal["query"]
    name: str


class SetSecretBodyUse1(TypedDict):
    hosts: list[str]
    methods: NotRequired[list[str]]
    paths: NotRequired[list[str]]
    git: NotRequired[list[SetSecretBodyUse1Git]]
    place: SetSecretBodyUse1Place1 | SetSecretBodyUse1Place2 | SetSecretBodyUse1Place3


class SetSecretBody(TypedDict):
    value: str
    use: NotRequired[SetSecretBodyUse1 | None]


class ListSecretsResultItemUse1Git(TypedDict):
    repository: str
    push: list[str]


class ListSecretsResultItemUse1Place1(TypedDict):
    kind: Literal["header"]
    name: str
    format: str


class ListSecretsResultItemUse1(TypedDict):
    hosts: list[str]
    methods: list[str]
    paths: list[str]
    git: list[ListSecretsResultItemUse1Git]
    place: ListSecretsResultItemUse1Place1 | SetSecretBodyUse1Place2 | SetSecretBodyUse1Place3


class ListSecretsResultItem(TypedDict):
    name: str
    changed_ms: int
    use: ListSecretsResultItemUse1 | None


class ListSecretsResult(TypedDict):
    items: list[ListSecretsResultItem]


class GetCostsResultRow(TypedDict):
    calls: int
    running: int
    input: int
    cache_read: int
    cache_write5m: int
    cache_write1h: int
    output: int
    reasoning: int
    cost_micros: int
    unpriced: int
    estimated: int
    key: dict[str, str | None]


class GetCostsResultTotal(TypedDict):
    calls: int
    running: int
    input: int
    cache_read: int
    cache_write5m: int
    cache_write1h: int
    output: int
    reasoning: int
    cost_micros: int
    unpriced: int
    estimated: int


class GetCostsResult(TypedDict):
    by: list[Literal["sandbox", "run", "agent", "project", "model", "upstream", "outcome", "day"]]
    rows: list[GetCostsResultRow]
    total: GetCostsResultTotal


class SetBudgetBody(TypedDict):
    scope: Literal["sandbox", "run", "agent", "project", "home"]
    name: NotRequired[str | Literal[""]]
    period: NotRequired[Literal["ever", "day"]]
    tokens: NotRequired[int | None]
    micros: NotRequired[int | None]
    action: NotRequired[Literal["refuse", "pause", "stop"]]


class SetBudgetResult(TypedDict):
    scope: Literal["sandbox", "run", "agent", "project", "home"]
    name: str
    period: Literal["ever", "day"]
    tokens: int | None
    micros: int | None
    action: Literal["refuse", "pause", "stop"]
    spent_tokens: int
    spent_micros: int
    held_tokens: int
    held_micros: int


class ListBudgetsResult(TypedDict):
    items: list[SetBudgetResult]


class SetNetworkBody(TypedDict):
    allow_internet: NotRequired[bool]
    allow_inter_sandbox: NotRequired[bool]
    allowed_ports: NotRequired[list[int]]
    allow: NotRequired[list[str]]
    deny: NotRequired[list[str]]
    allow_host_ports: NotRequired[list[int]]
    ask: NotRequired[bool]


class ListConnectionsResultConnection(TypedDict):
    id: int
    sandbox: str
    name: str
    port: int
    verdict: Literal["allowed", "refused", "asked"]
    reason: str | None
    remote: str | None
    bytes_sent: int
    bytes_received: int
    began_ms: int
    ended_ms: int


class ListConnectionsResult(TypedDict):
    connections: list[ListConnectionsResultConnection]


class ListQuestionsResultItem(TypedDict):
    name: str
    port: int
    asked_ms: int
    until_ms: int
    connections: int


class ListQuestionsResult(TypedDict):
    items: list[ListQuestionsResultItem]


class AnswerQuestionBody(TypedDict):
    name: str
    port: NotRequired[int]
    answer: Literal["allow", "once", "refuse", "deny"]


class AnswerQuestionResult(TypedDict):
    name: str
    port: int
    answer: Literal["allow", "once", "refuse", "deny"]
    connections: int


class ForwardPortBody(TypedDict):
    guest_port: int
    host_port: NotRequired[int]


class ListPortsResult(TypedDict):
    items: list[PortForward]


class WaitForPortBody(TypedDict):
    timeout_ms: NotRequired[int]


class WaitForPortResult(TypedDict):
    port: int
    waited_ms: float


class ListImagesResultItemSettings1(TypedDict):
    env: dict[str, str]
    entrypoint: list[str]
    cmd: list[str]
    user: str | None
    working_dir: str | None
    exposed_ports: list[str]
    labels: dict[str, str]
    stop_signal: str | None


class Image(TypedDict):
    id: str
    name: str
    source: str
    size_bytes: float
    digest: str
    created_at: str
    used_by: list[str]
    registry_digest: str | None
    layers: list[str]
    settings: ListImagesResultItemSettings1 | None
    warnings: list[str]


class ListImagesResult(TypedDict):
    items: list[Image]


class MakeImageBody(TypedDict):
    name: NotRequired[str]
    source: Literal["host"] | str
    refresh: NotRequired[bool]


class PullImageBody(TypedDict):
    name: str
    if_missing: NotRequired[bool]


class SendBuildContextResult(TypedDict):
    id: str


class BuildImageBody(TypedDict):
    name: str
    dockerfile: str
    context: NotRequired[str]
    args: NotRequired[dict[str, str]]
    secrets: NotRequired[dict[str, str]]
    target: NotRequired[str]
    network: NotRequired[Literal["none", "internet"]]
    no_cache: NotRequired[bool]
    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_mb: NotRequired[int]


CommitImageBody = TypedDict(
    "CommitImageBody",
    {
        "from": "str",
        "name": "str",
        "comment": "NotRequired[str]",
    },
)


class PushImageBody(TypedDict):
    to: NotRequired[str]


class PruneImagesBody(TypedDict):
    all: NotRequired[bool]
    builds: NotRequired[bool]


class PruneImagesResultRemoved(TypedDict):
    id: str
    name: str


class PruneImagesResult(TypedDict):
    build_snapshots: float
    removed: list[PruneImagesResultRemoved]
    freed_bytes: float


class ListRegistriesResultItem(TypedDict):
    registry: str
    username: str


class ListRegistriesResult(TypedDict):
    items: list[ListRegistriesResultItem]


class LoginRegistryBody(TypedDict):
    registry: str
    username: str
    password: str


class StartRunBodyRepo(TypedDict):
    url: str
    ref: NotRequired[str]
    path: NotRequired[str]


StartRunBody = TypedDict(
    "StartRunBody",
    {
        "name": "NotRequired[str]",
        "task": "str",
        "agent": "NotRequired[str]",
        "command": "NotRequired[str | list[str]]",
        "model": "NotRequired[str]",
        "sandbox": "NotRequired[str]",
        "image": "NotRequired[str]",
        "from": "NotRequired[str]",
        "driver": "NotRequired[Literal['container', 'gvisor']]",
        "cpus": "NotRequired[float]",
        "memory_mb": "NotRequired[int]",
        "disk_mb": "NotRequired[int]",
        "pids": "NotRequired[int]",
        "network": "NotRequired[CreateSandboxBodyNetwork]",
        "env": "NotRequired[dict[str, str]]",
        "cwd": "NotRequired[str]",
        "repo": "NotRequired[StartRunBodyRepo]",
        "project": "NotRequired[str]",
        "ticket": "NotRequired[str]",
        "labels": "NotRequired[dict[str, str]]",
        "timeout_s": "NotRequired[int]",
        "steps": "NotRequired[Literal['tool', 'turn', 'none']]",
        "step_memory": "NotRequired[bool]",
    },
)


class StartRunResultRepo1(TypedDict):
    url: str
    ref: str | None
    path: str


class StartRunResultParent1(TypedDict):
    run_id: str
    step: int


class StartRunResult(TypedDict):
    id: str
    name: str
    state: Literal["pending", "creating", "running", "completing", "completed", "failed"]
    outcome: Literal["succeeded", "failed", "cancelled"] | None
    reason: str
    paused: bool
    agent: str
    adapter: Literal["command", "acp", "pi"]
    model: str | None
    task: str
    sandbox_id: str | None
    owns_sandbox: bool
    repo: StartRunResultRepo1 | None
    project: str | None
    ticket: str | None
    labels: dict[str, str]
    turn: int
    working: bool
    last_step: int
    last_seq: int
    attempt: int
    parent: StartRunResultParent1 | None
    created_at: str
    started_at: str | None
    ended_at: str | None


class ListRunsResult(TypedDict):
    items: list[StartRunResult]


class ListAgentsResultItem(TypedDict):
    name: str
    title: str
    adapter: Literal["command", "acp", "pi"]
    base: str | None
    file: str | None
    version: str | None
    licence: str | None
    proprietary: bool
    packages: dict[str, str]
    model: str | None
    permissions: Literal["allow", "deny"] | None
    image: str | None
    snapshot: str | None
    memory_mb: float | None
    time_s: float | None


class ListAgentsResult(TypedDict):
    items: list[ListAgentsResultItem]


class CompareRunsResultStepA1(TypedDict):
    number: int
    kind: Literal["start", "tool", "turn", "manual"]
    title: str
    seq: int
    turn: int
    at: str
    snapshot_id: str | None
    has_memory: bool


class CompareRunsResultStep(TypedDict):
    number: int
    a: CompareRunsResultStepA1 | None
    b: CompareRunsResultStepA1 | None


class CompareRunsResultFile(TypedDict):
    path: str
    change: str


class CompareRunsResult(TypedDict):
    a: str
    b: str
    common: StartRunResultParent1 | None
    steps: list[CompareRunsResultStep]
    files: list[CompareRunsResultFile]
    compared_files: bool


GetRunResultTransition = TypedDict(
    "GetRunResultTransition",
    {
        "number": "int",
        "from": "Literal['pending', 'creating', 'running', 'completing', 'completed', 'failed'] | None",
        "to": "Literal['pending', 'creating', 'running', 'completing', 'completed', 'failed']",
        "reason": "str",
        "at": "str",
    },
)


class GetRunResult(TypedDict):
    id: str
    name: str
    state: Literal["pending", "creating", "running", "completing", "completed", "failed"]
    outcome: Literal["succeeded", "failed", "cancelled"] | None
    reason: str
    paused: bool
    agent: str
    adapter: Literal["command", "acp", "pi"]
    model: str | None
    task: str
    sandbox_id: str | None
    owns_sandbox: bool
    repo: StartRunResultRepo1 | None
    project: str | None
    ticket: str | None
    labels: dict[str, str]
    turn: int
    working: bool
    last_step: int
    last_seq: int
    attempt: int
    parent: StartRunResultParent1 | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    transitions: list[GetRunResultTransition]
    waiting_messages: int


class GetRunResultResult(TypedDict):
    outcome: Literal["succeeded", "failed", "cancelled"]
    reason: str
    text: str
    exit_code: float | None


class ListRunEventsResultEvent(TypedDict):
    seq: int
    run_id: str
    at: str
    type: Literal["run.state", "run.setup", "run.step", "run.paused", "run.resumed", "run.rewound", "run.forked", "agent.started", "agent.turn_started", "agent.turn_ended", "agent.message", "agent.thinking", "agent.output", "agent.tool_use", "agent.tool_result", "agent.file_edited", "agent.plan", "agent.progress", "agent.custom", "agent.waiting", "agent.message_injected", "agent.interrupted", "agent.heartbeat", "agent.context", "agent.error", "agent.exited", "agent.restarted", "agent.completed", "message.accepted", "message.sent", "message.delivered", "message.expired", "guardian.intervened", "guardian.reverted", "guardian.judged", "health.changed", "health.escalated", "health.quarantined", "health.cleared", "usage.call", "usage.refused"]
    source: Literal["agent", "daemon", "gateway", "user"]
    turn: int
    data: dict[str, Any]


class ListRunEventsResult(TypedDict):
    events: list[ListRunEventsResultEvent]
    last_seq: int


class GetTrajectoryResultEntry(TypedDict):
    from_seq: int
    to_seq: int
    event: ListRunEventsResultEvent
    count: int


class GetTrajectoryResult(TypedDict):
    entries: list[GetTrajectoryResultEntry]
    folded: int
    next: int | None


TellRunBody = TypedDict(
    "TellRunBody",
    {
        "text": "str",
        "kind": "NotRequired[Literal['user', 'nudge', 'constraint', 'interrupt']]",
        "urgency": "NotRequired[Literal['queue', 'steer', 'now']]",
        "priority": "NotRequired[int]",
        "expires_in_s": "NotRequired[int]",
        "from": "NotRequired[str]",
        "key": "NotRequired[str]",
    },
)


TellRunResult = TypedDict(
    "TellRunResult",
    {
        "id": "str",
        "run_id": "str",
        "number": "int",
        "kind": "Literal['user', 'nudge', 'constraint', 'interrupt']",
        "urgency": "Literal['queue', 'steer', 'now']",
        "priority": "int",
        "text": "str",
        "from": "str",
        "state": "Literal['accepted', 'sent', 'delivered', 'expired']",
        "via": "str | None",
        "accepted_at": "str",
        "sent_at": "str | None",
        "delivered_at": "str | None",
        "expires_at": "str | None",
        "note": "str | None",
    },
)


class ListRunMessagesResult(TypedDict):
    items: list[TellRunResult]


class InterruptRunBody(TypedDict):
    reason: NotRequired[str]


class StopRunBody(TypedDict):
    reason: NotRequired[str]


class ListStepsResult(TypedDict):
    items: list[CompareRunsResultStepA1]


class TakeStepBody(TypedDict):
    title: NotRequired[str]


class RewindRunBody(TypedDict):
    to: int
    message: NotRequired[str]


ForkRunBody = TypedDict(
    "ForkRunBody",
    {
        "from": "NotRequired[int]",
        "message": "NotRequired[str]",
        "name": "NotRequired[str]",
    },
)


RaceRunBody = TypedDict(
    "RaceRunBody",
    {
        "judge": "str",
        "n": "NotRequired[int]",
        "from": "NotRequired[int]",
        "messages": "NotRequired[list[str]]",
        "merge": "NotRequired[bool]",
    },
)


class RaceRunResultEntry(TypedDict):
    run_id: str
    outcome: Literal["succeeded", "failed", "cancelled"] | None
    exit_code: float | None
    output: str
    duration_ms: float | None


class RaceRunResult(TypedDict):
    run_id: str
    number: int
    state: Literal["running", "done", "failed"]
    reason: str
    from_step: int
    judge: str
    entries: list[RaceRunResultEntry]
    winner: str | None
    merged: bool
    created_at: str
    ended_at: str | None


class ListRacesResult(TypedDict):
    items: list[RaceRunResult]


class ReportEventBody(TypedDict):
    type: Literal["agent.message", "agent.thinking", "agent.tool_use", "agent.tool_result", "agent.file_edited", "agent.plan", "agent.progress", "agent.custom", "agent.waiting", "agent.error"]
    data: NotRequired[dict[str, Any]]


class ReportEventResult(TypedDict):
    seq: int


FetchMessagesResultItem = TypedDict(
    "FetchMessagesResultItem",
    {
        "id": "str",
        "number": "int",
        "kind": "Literal['user', 'nudge', 'constraint', 'interrupt']",
        "urgency": "Literal['queue', 'steer', 'now']",
        "text": "str",
        "from": "str",
    },
)


class FetchMessagesResult(TypedDict):
    items: list[FetchMessagesResultItem]


class ReportHeartbeatBody(TypedDict):
    status: NotRequired[str]


class ReportHeartbeatResult(TypedDict):
    state: Literal["pending", "creating", "running", "completing", "completed", "failed"]
    stop: bool
    messages: int


class ReportDoneBody(TypedDict):
    success: NotRequired[bool]
    text: NotRequired[str]


class ListRunWebhooksResultItem(TypedDict):
    id: str
    url: str
    run_id: str | None
    types: str | None
    state: Literal["active", "stopped"]
    failure: str | None
    waiting: int
    last_seq: int | None
    secret: str | None
    created_at: str


class ListRunWebhooksResult(TypedDict):
    items: list[ListRunWebhooksResultItem]


class AddRunWebhookBody(TypedDict):
    url: str
    run: NotRequired[str]
    types: NotRequired[str]
    after: NotRequired[int]
    secret: NotRequired[str]


class ResumeRunWebhookBody(TypedDict):
    after: NotRequired[int]


class WhoamiResult(TypedDict):
    token_id: str
    scope: str
    role: Literal["full", "read"]
    signed_in_until: str | None


class CreatePageLinkResult(TypedDict):
    code: str
    path: str
    expires_at: str


class ListProjectsResultItemMetrics(TypedDict):
    cost_usd: float
    revenue_usd: float
    profit_usd: float
    roi: float
    tokens: int
    agents: int
    active_agents: int
    runs: int
    failed_runs: int


class ListProjectsResultItem(TypedDict):
    id: str
    name: str
    description: str
    status: Literal["active", "promoted", "killed"]
    workspace: str
    created_at: str
    promoted_at: str | None
    cap_usd: float | None
    ends_at: str | None
    ended_because: str | None
    forgotten: bool
    metrics: ListProjectsResultItemMetrics


class ListProjectsResult(TypedDict):
    items: list[ListProjectsResultItem]


class CreateProjectBody(TypedDict):
    name: str
    description: NotRequired[str]
    cap_usd: NotRequired[float | None]
    time_limit_s: NotRequired[int | None]


class SummariseProjectsResult(TypedDict):
    projects: int
    active: int
    promoted: int
    killed: int
    agents: int
    cost_usd: float
    revenue_usd: float
    profit_usd: float
    roi: float
    forgotten: list[str]


class CompareProjectsResultDifference(TypedDict):
    metric: str
    a: float
    b: float
    delta: float


class CompareProjectsResultFailures(TypedDict):
    metric: str
    method: str
    n: int
    effect: float
    low: float | None
    high: float | None
    p: float | None
    evidence: float | None
    verdict: Literal["better", "worse", "inconclusive"]
    needs_more: int | None
    said: str


class CompareProjectsResult(TypedDict):
    a: ListProjectsResultItem
    b: ListProjectsResultItem
    differences: list[CompareProjectsResultDifference]
    failures: CompareProjectsResultFailures
    profit: CompareProjectsResultFailures


class GetProjectResultAgentLastRun1(TypedDict):
    id: str
    agent: str
    state: Literal["starting", "running", "ended"]
    exit: Literal["ok", "failed", "limit:time", "limit:cost", "limit:tokens", "cancelled", "infra"] | None
    summary: str
    sandbox: str | None
    snapshot: str | None
    started_at: str
    ended_at: str | None
    attempt: int


class GetProjectResultAgent(TypedDict):
    id: str
    name: str
    type: str
    type_version: int
    status: Literal["active", "paused", "killed"]
    config: dict[str, Any]
    token_budget: int
    schedule_s: int | None
    next_run_at: str | None
    deployed_at: str
    metrics: ListProjectsResultItemMetrics
    last_run: GetProjectResultAgentLastRun1 | None


class GetProjectResultExperiment(TypedDict):
    id: int
    project: str
    name: str
    hypothesis: str
    template: Literal["ab", "best-of-n", "regression", "bisect"]
    state: Literal["logged", "running", "done", "stopped", "failed"]
    success: bool | None
    base: str | None
    seed: int
    started_at: str
    completed_at: str | None
    failure: str | None
    planned: int
    winner: str | None
    said: str


class GetProjectResultReported(TypedDict):
    at: str
    name: str
    value: float
    agent: str | None
    run: str | None
    source: str


class GetProjectResultNote(TypedDict):
    at: str
    agent: str | None
    text: str
    source: str


class GetProjectResult(TypedDict):
    id: str
    name: str
    description: str
    status: Literal["active", "promoted", "killed"]
    workspace: str
    created_at: str
    promoted_at: str | None
    cap_usd: float | None
    ends_at: str | None
    ended_because: str | None
    forgotten: bool
    metrics: ListProjectsResultItemMetrics
    agents: list[GetProjectResultAgent]
    experiments: list[GetProjectResultExperiment]
    reported: list[GetProjectResultReported]
    notes: list[GetProjectResultNote]


class LimitProjectBody(TypedDict):
    cap_usd: NotRequired[float | None]
    time_limit_s: NotRequired[int | None]


class DeployAgentBody(TypedDict):
    type: str
    name: NotRequired[str]
    config: NotRequired[dict[str, Any]]
    run: NotRequired[bool]


class DeployAgentResult(TypedDict):
    id: str
    name: str
    type: str
    type_version: int
    status: Literal["active", "paused", "killed"]
    config: dict[str, Any]
    token_budget: int
    schedule_s: int | None
    next_run_at: str | None
    deployed_at: str
    metrics: ListProjectsResultItemMetrics
    last_run: GetProjectResultAgentLastRun1 | None


class ChangeAgentBody(TypedDict):
    status: Literal["active", "paused", "killed"]


class ListProjectRunsResult(TypedDict):
    items: list[GetProjectResultAgentLastRun1]


class ReportMetricBody(TypedDict):
    name: str
    value: float
    agent: NotRequired[str]
    source: NotRequired[str]
    key: NotRequired[str]
    evidence: NotRequired[str]


class WriteProjectNoteBody(TypedDict):
    text: str
    agent: NotRequired[str]


class ListLedgerResultItem(TypedDict):
    id: int
    at: str
    project: str
    agent: str | None
    run: str | None
    kind: Literal["cost", "revenue", "refund", "adjustment"]
    usd: float
    source: str
    evidence: str


class ListLedgerResult(TypedDict):
    items: list[ListLedgerResultItem]


class EvaluateProjectBody(TypedDict):
    council: NotRequired[bool]
    model: NotRequired[str]


class EvaluateProjectResultCriteria(TypedDict):
    name: str
    value: float
    threshold: float
    passed: bool


class EvaluateProjectResultExperiment(TypedDict):
    id: int
    name: str
    variant: str
    gate: CompareProjectsResultFailures


class EvaluateProjectResultPromotable(TypedDict):
    id: str
    name: str
    roi: float


class EvaluateProjectResultCouncil1(TypedDict):
    judge: str
    vote: Literal["promote", "hold"]
    reasons: str
    cost_usd: float


class EvaluateProjectResult(TypedDict):
    project: str
    metrics: ListProjectsResultItemMetrics
    criteria: list[EvaluateProjectResultCriteria]
    all_passed: bool
    recommendation: Literal["STRONGLY_RECOMMEND", "RECOMMEND", "CONSIDER", "NOT_READY"]
    experiments: list[EvaluateProjectResultExperiment]
    promotable: list[EvaluateProjectResultPromotable]
    council: list[EvaluateProjectResultCouncil1] | None
    digest: str


class PromoteProjectBody(TypedDict):
    digest: str


class PromoteProjectResultAgentRollback1(TypedDict):
    at: str
    reason: str
    by: str
    snapshot: str | None
    replaced_by: str | None


class PromoteProjectResultAgent(TypedDict):
    id: str
    lane: str
    name: str
    type: str
    type_version: int
    stage: Literal["shadow", "canary", "live", "rolled-back"]
    status: Literal["active", "paused", "killed"]
    config: dict[str, Any]
    token_budget: int
    schedule_s: int | None
    next_run_at: str | None
    project: str
    from_agent: str
    snapshot: str | None
    notes: list[str]
    baseline_failures: float
    runs: int
    failed_runs: int
    cost_usd: float
    revenue_usd: float
    promoted_at: str
    rollback: PromoteProjectResultAgentRollback1 | None


class PromoteProjectResult(TypedDict):
    project: str
    promoted_at: str
    digest: str
    agents: list[PromoteProjectResultAgent]
    fresh: bool


class StartExperimentBodyVariant(TypedDict):
    name: str
    config: NotRequired[dict[str, Any]]
    prompt: NotRequired[str]
    image: NotRequired[str]
    snapshot: NotRequired[str]
    time_limit_s: NotRequired[int]


class StartExperimentBodyCase(TypedDict):
    id: str
    input: NotRequired[str]
    expected: NotRequired[str]


class StartExperimentBodyEvaluator1(TypedDict):
    kind: Literal["exit-code"]


class StartExperimentBodyEvaluator2(TypedDict):
    kind: Literal["script"]
    script: str


class StartExperimentBodyEvaluator3(TypedDict):
    kind: Literal["diff"]
    must_change: NotRequired[list[str]]
    may_change: NotRequired[list[str]]


class StartExperimentBodyEvaluator4(TypedDict):
    kind: Literal["judge"]
    model: str
    brief: str


class StartExperimentBodyEvaluator5(TypedDict):
    kind: Literal["person"]


class StartExperimentBody(TypedDict):
    name: str
    hypothesis: NotRequired[str]
    config: NotRequired[dict[str, Any]]
    template: NotRequired[Literal["ab", "best-of-n", "regression", "bisect"]]
    type: NotRequired[str]
    variants: NotRequired[list[StartExperimentBodyVariant]]
    cases: NotRequired[list[StartExperimentBodyCase]]
    epochs: NotRequired[int]
    evaluator: NotRequired[StartExperimentBodyEvaluator1 | StartExperimentBodyEvaluator2 | StartExperimentBodyEvaluator3 | StartExperimentBodyEvaluator4 | StartExperimentBodyEvaluator5]
    snapshot: NotRequired[str]
    seed: NotRequired[int]
    parallel: NotRequired[int]
    stop: NotRequired[Literal["anytime", "fixed"]]
    merge_into: NotRequired[str]
    snapshots: NotRequired[list[str]]


class StartExperimentResultTrial(TypedDict):
    n: int
    variant: str
    case: str
    epoch: int
    state: Literal["pending", "running", "waiting", "done"]
    exit: Literal["ok", "failed", "limit:time", "limit:cost", "limit:tokens", "cancelled", "infra"] | None
    passed: bool | None
    score: float | None
    cost_usd: float
    duration_ms: int | None
    attempts: int
    reason: str
    snapshot: str | None


class StartExperimentResultVariant(TypedDict):
    name: str
    n: int
    passed: int
    rate: float
    low: float
    high: float
    cost_usd: float
    mean_ms: float
    gate: CompareProjectsResultFailures | None


class StartExperimentResult(TypedDict):
    id: int
    project: str
    name: str
    hypothesis: str
    template: Literal["ab", "best-of-n", "regression", "bisect"]
    state: Literal["logged", "running", "done", "stopped", "failed"]
    success: bool | None
    config: dict[str, Any]
    results: dict[str, Any]
    base: str | None
    seed: int
    started_at: str
    completed_at: str | None
    failure: str | None
    planned: int
    trials: list[StartExperimentResultTrial]
    variants: list[StartExperimentResultVariant]
    winner: str | None
    said: str


class CompleteExperimentBody(TypedDict):
    results: NotRequired[dict[str, Any]]
    success: bool


class ScoreTrialBody(TypedDict):
    trial: int
    passed: bool
    reason: NotRequired[str]


class TakeProjectSnapshotBody(TypedDict):
    name: str


class TakeProjectSnapshotResult(TypedDict):
    id: int
    project: str
    name: str
    at: str
    agents: int
    sandboxes: int


class ListProjectSnapshotsResult(TypedDict):
    items: list[TakeProjectSnapshotResult]


class ListAgentTypesResultItem(TypedDict):
    name: str
    version: int
    title: str
    description: str
    adapter: str
    needs_model: bool
    parameters: dict[str, Any]
    token_budget: int
    schedule_s: int | None


class ListAgentTypesResult(TypedDict):
    items: list[ListAgentTypesResultItem]


class ListProductionResult(TypedDict):
    items: list[PromoteProjectResultAgent]


class ChangeProductionAgentBody(TypedDict):
    status: NotRequired[Literal["active", "paused", "killed"]]
    config: NotRequired[dict[str, Any]]


class ChangeProductionAgentResult(TypedDict):
    id: str
    lane: str
    name: str
    type: str
    type_version: int
    stage: Literal["shadow", "canary", "live", "rolled-back"]
    status: Literal["active", "paused", "killed"]
    config: dict[str, Any]
    token_budget: int
    schedule_s: int | None
    next_run_at: str | None
    project: str
    from_agent: str
    snapshot: str | None
    notes: list[str]
    baseline_failures: float
    runs: int
    failed_runs: int
    cost_usd: float
    revenue_usd: float
    promoted_at: str
    rollback: PromoteProjectResultAgentRollback1 | None


class RollBackBody(TypedDict):
    reason: NotRequired[str]


class ListNewsTargetsResultItem(TypedDict):
    url: str
    secret: str | None
    created_at: str


class ListNewsTargetsResult(TypedDict):
    items: list[ListNewsTargetsResultItem]


class AddNewsTargetBody(TypedDict):
    url: str
    secret: NotRequired[str]


class ExecOptions(TypedDict):
    env: NotRequired[dict[str, str]]
    cwd: NotRequired[str]
    user: NotRequired[str]
    timeout_ms: NotRequired[int]
    stdin: NotRequired[str]
    stdin_base64: NotRequired[str]
    max_output_bytes: NotRequired[int]
