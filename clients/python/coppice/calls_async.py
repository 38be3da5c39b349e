"""Every call of the HTTP API. Written by scripts/generate-python-client.ts; changes here are lost."""

from __future__ import annotations

from typing import Any, AsyncGenerator, AsyncIterable, Iterable, Literal

from . import types as t
from .messages import ServerEvent, segment
from .transport_async import AsyncTransport


class AsyncCalls:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def health(self) -> t.Health:
        """Check whether the daemon is healthy."""
        return await self._transport.json("GET", "/v1/health", None)

    async def doctor(self) -> t.DoctorResult:
        """Find what is wrong with this machine and how to fix it."""
        return await self._transport.json("GET", "/v1/doctor", None)

    async def metrics(self) -> str:
        """Metrics for Prometheus."""
        return await self._transport.text("GET", "/metrics", None)

    async def list_events(self, *, after: int | None = None, sandbox: str | None = None, type: str | None = None, limit: int | None = None) -> t.ListEventsResult:
        """List the events of what the token reaches, after a sequence number."""
        return await self._transport.json("GET", "/v1/events", {"after": after, "sandbox": sandbox, "type": type, "limit": limit})

    def stream_events(self, *, after: int | None = None, sandbox: str | None = None, type: str | None = None) -> AsyncGenerator[ServerEvent, None]:
        """Stream the events of what the token reaches as they happen, from any sequence number (Last-Event-ID or `after`)."""
        return self._transport.events("GET", "/v1/events/stream", {"after": after, "sandbox": sandbox, "type": type})

    async def list_tokens(self) -> t.ListTokensResult:
        """List tokens."""
        return await self._transport.json("GET", "/v1/tokens", None)

    async def create_token(self, body: t.CreateTokenBody) -> t.CreateTokenResult:
        """Create a token; its secret is shown once."""
        return await self._transport.json("POST", "/v1/tokens", None, body=body)

    async def revoke_token(self, token: str) -> dict[str, Any]:
        """Revoke a token."""
        return await self._transport.json("DELETE", f"/v1/tokens/{segment(token)}", None)

    async def list_sandboxes(self, *, state: Literal["creating", "running", "stopped", "paused", "failed", "destroying"] | None = None, label: str | None = None, image: str | None = None, parent: str | None = None, project: str | None = None) -> t.ListSandboxesResult:
        """List sandboxes."""
        return await self._transport.json("GET", "/v1/sandboxes", {"state": state, "label": label, "image": image, "parent": parent, "project": project})

    async def create_sandbox(self, body: t.CreateSandboxBody | None = None) -> t.CreatedSandbox:
        """Create and start a sandbox."""
        return await self._transport.json("POST", "/v1/sandboxes", None, body=body)

    async def get_sandbox(self, sandbox: str) -> t.SandboxDetail:
        """Inspect a sandbox."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}", None)

    async def update_sandbox(self, sandbox: str, body: t.UpdateSandboxBody | None = None) -> t.SandboxInfo:
        """Change name, labels, environment, limits or timeouts."""
        return await self._transport.json("PATCH", f"/v1/sandboxes/{segment(sandbox)}", None, body=body)

    async def destroy_sandbox(self, sandbox: str, *, snapshots: Literal["keep", "delete"] | None = None) -> t.DestroySandboxResult:
        """Destroy a sandbox and its disk; its snapshots stay unless told otherwise."""
        return await self._transport.json("DELETE", f"/v1/sandboxes/{segment(sandbox)}", {"snapshots": snapshots})

    async def list_usage(self, *, project: str | None = None) -> t.ListUsageResult:
        """Show what sandboxes use now: CPU, memory, disk, processes."""
        return await self._transport.json("GET", "/v1/usage", {"project": project})

    async def start_sandbox(self, sandbox: str) -> t.SandboxInfo:
        """Start a stopped sandbox."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/start", None)

    async def stop_sandbox(self, sandbox: str, body: t.StopSandboxBody | None = None) -> t.SandboxInfo:
        """Stop a sandbox: its processes end, its disk stays."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/stop", None, body=body)

    async def pause_sandbox(self, sandbox: str, body: t.PauseSandboxBody | None = None) -> t.SandboxInfo:
        """Pause a sandbox: its memory goes to disk and its processes end."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/pause", None, body=body)

    async def resume_sandbox(self, sandbox: str) -> t.SandboxInfo:
        """Resume a paused sandbox."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/resume", None)

    async def exec(self, sandbox: str, body: t.ExecBody) -> t.ExecResult:
        """Run a command and collect its output."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/exec", None, body=body)

    def exec_events(self, sandbox: str, body: t.ExecBody) -> AsyncGenerator[ServerEvent, None]:
        """Run a command and stream its output as server-sent events."""
        return self._transport.events("POST", f"/v1/sandboxes/{segment(sandbox)}/exec/events", None, body=body)

    async def start_job(self, sandbox: str, body: t.StartJobBody) -> t.Job:
        """Start a background job."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/jobs", None, body=body)

    async def list_jobs(self, sandbox: str) -> t.ListJobsResult:
        """List background jobs."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/jobs", None)

    async def get_job(self, sandbox: str, job: int) -> t.Job:
        """Inspect a background job."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/jobs/{segment(job)}", None)

    async def read_job(self, sandbox: str, job: int, *, cursor: int | None = None, max_bytes: int | None = None, wait_ms: int | None = None) -> t.ReadJobResult:
        """Read the log of a job from a cursor, and wait for more if asked."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/jobs/{segment(job)}/log", {"cursor": cursor, "max_bytes": max_bytes, "wait_ms": wait_ms})

    async def signal_job(self, sandbox: str, job: int, body: t.SignalJobBody | None = None) -> dict[str, Any]:
        """Send a signal to the process group of a job."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/jobs/{segment(job)}/signal", None, body=body)

    async def open_terminal(self, sandbox: str, body: t.OpenTerminalBody | None = None) -> t.OpenTerminalResult:
        """Open a terminal."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/terminals", None, body=body)

    async def list_terminals(self, sandbox: str) -> t.ListTerminalsResult:
        """List terminals."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/terminals", None)

    async def resize_terminal(self, sandbox: str, terminal: int, body: t.ResizeTerminalBody) -> dict[str, Any]:
        """Resize a terminal."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/terminals/{segment(terminal)}/resize", None, body=body)

    async def signal_terminal(self, sandbox: str, terminal: int, body: t.SignalJobBody | None = None) -> dict[str, Any]:
        """Send a signal to the process group of a terminal."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/terminals/{segment(terminal)}/signal", None, body=body)

    def read_file(self, sandbox: str, *, path: str, offset: int | None = None, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """Read a file or a range of it."""
        return self._transport.stream("GET", f"/v1/sandboxes/{segment(sandbox)}/files/content", {"path": path, "offset": offset, "length": length})

    async def write_file(self, sandbox: str, content: bytes | Iterable[bytes] | AsyncIterable[bytes], *, path: str, mode: str | None = None, owner: str | None = None, parents: Literal["true", "false"] | None = None) -> t.WriteFileResult:
        """Write a file atomically: readers see the old file or the new one."""
        return await self._transport.json("PUT", f"/v1/sandboxes/{segment(sandbox)}/files/content", {"path": path, "mode": mode, "owner": owner, "parents": parents}, content=content)

    async def edit_file(self, sandbox: str, body: t.EditFileBody) -> t.EditFileResult:
        """Replace an exact string in a file."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/files/edit", None, body=body)

    async def list_files(self, sandbox: str, *, path: str, depth: int | None = None, limit: int | None = None) -> t.ListFilesResult:
        """List a directory."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/files", {"path": path, "depth": depth, "limit": limit})

    async def remove_file(self, sandbox: str, *, path: str, recursive: Literal["true", "false"] | None = None) -> dict[str, Any]:
        """Remove a file or a directory."""
        return await self._transport.json("DELETE", f"/v1/sandboxes/{segment(sandbox)}/files", {"path": path, "recursive": recursive})

    async def stat_file(self, sandbox: str, *, path: str) -> t.FileEntry:
        """Inspect a path."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/files/stat", {"path": path})

    async def move_file(self, sandbox: str, body: t.MoveFileBody) -> dict[str, Any]:
        """Move or rename a file."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/files/move", None, body=body)

    async def make_directory(self, sandbox: str, body: t.MakeDirectoryBody) -> dict[str, Any]:
        """Make a directory."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/files/mkdir", None, body=body)

    def watch_files(self, sandbox: str, *, path: str, recursive: Literal["true", "false"] | None = None) -> AsyncGenerator[ServerEvent, None]:
        """Watch a path for changes."""
        return self._transport.events("GET", f"/v1/sandboxes/{segment(sandbox)}/files/watch", {"path": path, "recursive": recursive})

    def download_archive(self, sandbox: str, *, path: str) -> AsyncGenerator[bytes, None]:
        """Download a directory as a tar."""
        return self._transport.stream("GET", f"/v1/sandboxes/{segment(sandbox)}/files/archive", {"path": path})

    async def upload_archive(self, sandbox: str, content: bytes | Iterable[bytes] | AsyncIterable[bytes], *, path: str) -> t.UploadArchiveResult:
        """Unpack a tar into a directory."""
        return await self._transport.json("PUT", f"/v1/sandboxes/{segment(sandbox)}/files/archive", {"path": path}, content=content)

    async def create_snapshot(self, sandbox: str, body: t.CreateSnapshotBody | None = None) -> t.TakenSnapshot:
        """Snapshot a live or stopped sandbox; with memory it is a checkpoint."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/snapshots", None, body=body)

    async def list_sandbox_snapshots(self, sandbox: str) -> t.ListSandboxSnapshotsResult:
        """List the snapshots of a sandbox."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/snapshots", None)

    async def list_snapshots(self, *, project: str | None = None) -> t.ListSandboxSnapshotsResult:
        """List all snapshots."""
        return await self._transport.json("GET", "/v1/snapshots", {"project": project})

    async def get_snapshot(self, snapshot: str) -> t.Snapshot:
        """Inspect a snapshot."""
        return await self._transport.json("GET", f"/v1/snapshots/{segment(snapshot)}", None)

    async def update_snapshot(self, snapshot: str, body: t.UpdateSnapshotBody | None = None) -> t.Snapshot:
        """Keep an automatic snapshot; change the name or note of any snapshot."""
        return await self._transport.json("PATCH", f"/v1/snapshots/{segment(snapshot)}", None, body=body)

    async def delete_snapshot(self, snapshot: str) -> dict[str, Any]:
        """Delete a snapshot that nothing depends on."""
        return await self._transport.json("DELETE", f"/v1/snapshots/{segment(snapshot)}", None)

    def export_snapshot(self, snapshot: str, body: t.ExportSnapshotBody | None = None) -> AsyncGenerator[bytes, None]:
        """Export a snapshot or checkpoint as one file."""
        return self._transport.stream("POST", f"/v1/snapshots/{segment(snapshot)}/export", None, body=body)

    async def import_contents(self) -> t.ImportContentsResult:
        """List by digest what a file for this machine need not carry: the answer is `have` of an export."""
        return await self._transport.json("GET", "/v1/snapshots/import", None)

    async def import_snapshot(self, content: bytes | Iterable[bytes] | AsyncIterable[bytes], *, name: str | None = None, project: str | None = None, disk_only: Literal["true", "false"] | None = None) -> t.ImportSnapshotResult:
        """Import a file that export wrote."""
        return await self._transport.json("POST", "/v1/snapshots/import", {"name": name, "project": project, "disk_only": disk_only}, content=content)

    async def list_strays(self) -> t.ListStraysResult:
        """List disks set aside at start-up because the database did not know them."""
        return await self._transport.json("GET", "/v1/strays", None)

    async def keep_stray(self, stray: str, body: t.KeepStrayBody | None = None) -> t.Snapshot:
        """Turn a disk that was set aside into a snapshot."""
        return await self._transport.json("POST", f"/v1/strays/{segment(stray)}/keep", None, body=body)

    async def delete_stray(self, stray: str) -> dict[str, Any]:
        """Delete a disk that was set aside."""
        return await self._transport.json("DELETE", f"/v1/strays/{segment(stray)}", None)

    async def restore_sandbox(self, sandbox: str, body: t.RestoreSandboxBody) -> t.RestoreSandboxResult:
        """Restore a sandbox to a snapshot; all snapshots stay."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/restore", None, body=body)

    async def fork_snapshot(self, snapshot: str, body: t.ForkSnapshotBody | None = None) -> t.Forked:
        """Fork sandboxes from a snapshot."""
        return await self._transport.json("POST", f"/v1/snapshots/{segment(snapshot)}/fork", None, body=body)

    async def fork_sandbox(self, sandbox: str, body: t.ForkSandboxBody | None = None) -> t.Forked:
        """Fork sandboxes from a sandbox in one step."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/fork", None, body=body)

    async def diff(self, *, from_: str, to: str, path: str | list[str] | None = None, exclude: str | list[str] | None = None, limit: int | None = None) -> t.Diff:
        """List files that differ between two snapshots or sandboxes."""
        return await self._transport.json("GET", "/v1/diff", {"from": from_, "to": to, "path": path, "exclude": exclude, "limit": limit})

    async def diff_file(self, *, from_: str, to: str, path: str, max_bytes: int | None = None) -> t.DiffFileResult:
        """Show the unified diff of one file."""
        return await self._transport.json("GET", "/v1/diff/file", {"from": from_, "to": to, "path": path, "max_bytes": max_bytes})

    async def diff_patch(self, *, from_: str, to: str, path: str | list[str] | None = None, exclude: str | list[str] | None = None) -> t.DiffPatchResult:
        """Write all differences as one patch for git apply."""
        return await self._transport.json("GET", "/v1/diff/patch", {"from": from_, "to": to, "path": path, "exclude": exclude})

    async def merge(self, sandbox: str, body: t.MergeBody) -> t.Merged:
        """Merge the changes of a fork into this sandbox, three-way."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/merge", None, body=body)

    async def lineage(self, *, project: str | None = None) -> t.LineageResult:
        """Show the lineage: which sandbox or snapshot came from which."""
        return await self._transport.json("GET", "/v1/lineage", {"project": project})

    async def git_status(self, sandbox: str, *, path: str | None = None) -> t.GitStatusResult:
        """Show the branch of a repository and what has changed since the last commit."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/git/status", {"path": path})

    async def git_diff(self, sandbox: str, *, path: str | None = None, staged: Literal["true", "false"] | None = None, stat: Literal["true", "false"] | None = None, file: str | None = None, max_bytes: int | None = None) -> t.GitDiffResult:
        """Show uncommitted changes in a repository."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/git/diff", {"path": path, "staged": staged, "stat": stat, "file": file, "max_bytes": max_bytes})

    async def git_clone(self, sandbox: str, body: t.GitCloneBody) -> t.GitCloneResult:
        """Clone a repository into a sandbox."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/git/clone", None, body=body)

    async def git_commit(self, sandbox: str, body: t.GitCommitBody) -> t.GitCommitResult:
        """Commit changes in a repository; having none is not an error."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/git/commit", None, body=body)

    async def git_push(self, sandbox: str, body: t.GitPushBody | None = None) -> t.GitPushResult:
        """Push a branch to a remote."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/git/push", None, body=body)

    async def merge_commits(self, sandbox: str, body: t.MergeCommitsBody) -> t.MergeCommitsResult:
        """Merge commits of forks into the repository of this sandbox. Safe to repeat, in both directions."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/git/merge", None, body=body)

    async def list_repositories(self) -> t.ListRepositoriesResult:
        """List repositories."""
        return await self._transport.json("GET", "/v1/forge/repositories", None)

    async def create_repository(self, body: t.CreateRepositoryBody) -> t.ListRepositoriesResultItem:
        """Create a repository here, or register one of another forge."""
        return await self._transport.json("POST", "/v1/forge/repositories", None, body=body)

    async def get_repository(self, repository: str) -> t.ListRepositoriesResultItem:
        """Inspect a repository."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}", None)

    async def remove_repository(self, repository: str) -> dict[str, Any]:
        """Remove a repository and everything in it; one of another forge is only forgotten here."""
        return await self._transport.json("DELETE", f"/v1/forge/repositories/{segment(repository)}", None)

    async def examine_forge(self, repository: str) -> t.ExamineForgeResult:
        """Test the forge with a scratch branch and a draft pull request, then clean up."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/doctor", None)

    async def list_issues(self, repository: str) -> t.ListIssuesResult:
        """List issues."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/issues", None)

    async def create_issue(self, repository: str, body: t.CreateIssueBody) -> t.ListIssuesResultItem:
        """Open an issue."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/issues", None, body=body)

    async def get_issue(self, repository: str, issue: str) -> t.ListIssuesResultItem:
        """Inspect an issue."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/issues/{segment(issue)}", None)

    async def list_issue_comments(self, repository: str, issue: str) -> t.ListIssueCommentsResult:
        """List the comments on an issue."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/issues/{segment(issue)}/comments", None)

    async def comment_issue(self, repository: str, issue: str, body: t.CommentIssueBody) -> t.ListIssueCommentsResultItem:
        """Comment on an issue."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/issues/{segment(issue)}/comments", None, body=body)

    async def list_pulls(self, repository: str, *, state: Literal["open", "all"] | None = None) -> t.ListPullsResult:
        """List pull requests."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/pulls", {"state": state})

    async def create_pull(self, repository: str, body: t.CreatePullBody) -> t.ListPullsResultItem:
        """Open a pull request."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/pulls", None, body=body)

    async def get_pull(self, repository: str, pull: int) -> t.ListPullsResultItem:
        """Inspect a pull request, and check whether it can be merged."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/pulls/{segment(pull)}", None)

    async def close_pull(self, repository: str, pull: int) -> t.ListPullsResultItem:
        """Close a pull request without merging it."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/pulls/{segment(pull)}/close", None)

    async def merge_pull(self, repository: str, pull: int, body: t.MergePullBody) -> t.MergePullResult:
        """Merge a pull request if its head is the expected commit; conflicts are never forced."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/pulls/{segment(pull)}/merge", None, body=body)

    async def list_reviews(self, repository: str, pull: int) -> t.ListReviewsResult:
        """List the newest review of each reviewer."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/pulls/{segment(pull)}/reviews", None)

    async def review_pull(self, repository: str, pull: int, body: t.ReviewPullBody) -> t.ListReviewsResultItem:
        """Review a pull request."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/pulls/{segment(pull)}/reviews", None, body=body)

    async def list_checks(self, repository: str, sha: str) -> t.ListChecksResult:
        """List the checks of a commit, the newest of each name."""
        return await self._transport.json("GET", f"/v1/forge/repositories/{segment(repository)}/checks/{segment(sha)}", None)

    async def report_check(self, repository: str, body: t.ReportCheckBody) -> dict[str, Any]:
        """Report the result of a check on a commit."""
        return await self._transport.json("POST", f"/v1/forge/repositories/{segment(repository)}/checks", None, body=body)

    async def start_branch(self, body: t.StartBranchBody) -> t.StartBranchResult:
        """Create the branch of a ticket and a sandbox with it checked out; start an agent there if asked. Safe to repeat."""
        return await self._transport.json("POST", "/v1/branches/start", None, body=body)

    async def finish_branch(self, body: t.FinishBranchBody) -> t.StartBranchResult:
        """Push the commits of the sandbox to the forge and open a pull request. Safe to repeat."""
        return await self._transport.json("POST", "/v1/branches/finish", None, body=body)

    async def merge_branch(self, body: t.MergeBranchBody) -> t.StartBranchResult:
        """Merge the pull request, then remove the branch and its sandbox. Conflicts are reported, never forced."""
        return await self._transport.json("POST", "/v1/branches/merge", None, body=body)

    async def branch_status(self, *, repository: str, branch: str) -> t.StartBranchResult:
        """Show the state of a branch."""
        return await self._transport.json("GET", "/v1/branches/status", {"repository": repository, "branch": branch})

    async def list_branches(self, *, repository: str | None = None) -> t.ListBranchesResult:
        """List the branches of tickets, as last seen."""
        return await self._transport.json("GET", "/v1/branches", {"repository": repository})

    async def guardian_status(self) -> t.GuardianStatusResult:
        """Show the rules that runs are watched by, and errors in their file."""
        return await self._transport.json("GET", "/v1/guardian", None)

    async def conductor(self) -> t.ConductorResult:
        """Find runs that do the same work or edit the same files."""
        return await self._transport.json("GET", "/v1/guardian/conductor", None)

    async def intervene(self, run: str, body: t.InterveneBody) -> t.InterveneResult:
        """Intervene in a run by hand; the intervention is recorded."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/interventions", None, body=body)

    async def list_interventions(self, run: str) -> t.ListInterventionsResult:
        """List the interventions in a run: who, what, and the state before and after."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/interventions", None)

    async def revert_intervention(self, intervention: int) -> t.InterveneResult:
        """Undo an intervention: the run returns to the step before it."""
        return await self._transport.json("POST", f"/v1/interventions/{segment(intervention)}/revert", None)

    async def guardian_dry_run(self, run: str, body: t.GuardianDryRunBody | None = None) -> t.GuardianDryRunResult:
        """Replay a run and show what the guardian would have done."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/guardian/dry-run", None, body=body)

    async def judge_run(self, run: str) -> t.JudgeRunResult:
        """Have the configured model score the trajectory against the task."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/guardian/judge", None)

    async def runs_health(self) -> t.RunsHealthResult:
        """Show the health of active runs: heartbeats, progress, restarts."""
        return await self._transport.json("GET", "/v1/runs/health", None)

    async def quarantine_run(self, run: str, body: t.QuarantineRunBody) -> t.RunsHealthResultItem:
        """Cut the network of a run, freeze it, and keep evidence."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/quarantine", None, body=body)

    async def clear_run(self, run: str, body: t.QuarantineRunBody) -> t.RunsHealthResultItem:
        """Let a run out of quarantine, with a reason."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/quarantine/clear", None, body=body)

    def prepare_sandbox(self, body: t.PrepareSandboxBody) -> AsyncGenerator[ServerEvent, None]:
        """Create a sandbox, set it up and snapshot it as `golden`. Safe to repeat: it returns what is there."""
        return self._transport.events("POST", "/v1/sandboxes/prepare", None, body=body)

    def run_swarm(self, sandbox: str, body: t.RunSwarmBody) -> AsyncGenerator[ServerEvent, None]:
        """Run each task in its own fork of a snapshot, and merge their commits if asked."""
        return self._transport.events("POST", f"/v1/sandboxes/{segment(sandbox)}/swarm", None, body=body)

    async def list_sessions(self) -> t.ListSessionsResult:
        """List the agent sessions that own sandboxes."""
        return await self._transport.json("GET", "/v1/sessions", None)

    async def adopt_sandbox(self, sandbox: str, body: t.AdoptSandboxBody) -> t.AdoptSandboxResult:
        """Transfer a sandbox to a session; taking it from an active session needs `force`."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/adopt", None, body=body)

    async def list_notes(self, *, folder: str | None = None, recursive: Literal["true", "false"] | None = None) -> t.ListNotesResult:
        """List the notes that agents share."""
        return await self._transport.json("GET", "/v1/notes", {"folder": folder, "recursive": recursive})

    async def read_note(self, *, path: str, format: Literal["markdown", "json"] | None = None) -> t.ReadNoteResult:
        """Read a note."""
        return await self._transport.json("GET", "/v1/notes/content", {"path": path, "format": format})

    async def write_note(self, body: t.WriteNoteBody) -> t.WriteFileResult:
        """Write a note atomically: readers see the old note or the new one."""
        return await self._transport.json("PUT", "/v1/notes/content", None, body=body)

    async def delete_note(self, *, path: str) -> dict[str, Any]:
        """Delete a note."""
        return await self._transport.json("DELETE", "/v1/notes/content", {"path": path})

    async def move_note(self, body: t.MoveNoteBody) -> dict[str, Any]:
        """Move a note."""
        return await self._transport.json("POST", "/v1/notes/move", None, body=body)

    async def replace_in_note(self, body: t.ReplaceInNoteBody) -> t.ReplaceInNoteResult:
        """Replace every occurrence of a text, or match of a regular expression, in a note."""
        return await self._transport.json("POST", "/v1/notes/replace", None, body=body)

    async def search_notes(self, *, query: str, regex: Literal["true", "false"] | None = None, tag: str | None = None, folder: str | None = None, limit: int | None = None) -> t.SearchNotesResult:
        """Search notes for words or a regular expression."""
        return await self._transport.json("GET", "/v1/notes/search", {"query": query, "regex": regex, "tag": tag, "folder": folder, "limit": limit})

    async def change_frontmatter(self, body: t.ChangeFrontmatterBody) -> t.ChangeFrontmatterResult:
        """Set and delete keys and tags in the front matter of a note."""
        return await self._transport.json("PATCH", "/v1/notes/frontmatter", None, body=body)

    async def list_note_tags(self, *, path: str | None = None) -> t.ListNoteTagsResult:
        """List the tags of a note, or all tags in use."""
        return await self._transport.json("GET", "/v1/notes/tags", {"path": path})

    async def set_caller(self, sandbox: str, body: t.SetCallerBody | None = None) -> t.SetCallerBody:
        """Set which run, agent and project its model calls are billed to."""
        return await self._transport.json("PUT", f"/v1/sandboxes/{segment(sandbox)}/caller", None, body=body)

    async def get_caller(self, sandbox: str) -> t.SetCallerBody:
        """Show which run, agent and project its model calls are billed to."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/caller", None)

    async def set_secret(self, secret: str, body: t.SetSecretBody) -> dict[str, Any]:
        """Create a secret in the gateway, or change its value."""
        return await self._transport.json("PUT", f"/v1/secrets/{segment(secret)}", None, body=body)

    async def remove_secret(self, secret: str) -> dict[str, Any]:
        """Delete a secret."""
        return await self._transport.json("DELETE", f"/v1/secrets/{segment(secret)}", None)

    async def rekey_secrets(self) -> dict[str, Any]:
        """Seal every secret with another key: a fresh key file, or what the command of the key prints now."""
        return await self._transport.json("POST", "/v1/secrets/rekey", None)

    async def list_secrets(self) -> t.ListSecretsResult:
        """List the names of secrets; their values never leave the gateway."""
        return await self._transport.json("GET", "/v1/secrets", None)

    async def get_costs(self, *, by: str | None = None, since_ms: int | None = None, until_ms: int | None = None, sandbox: str | None = None, run: str | None = None, agent: str | None = None, project: str | None = None, model: str | None = None) -> t.GetCostsResult:
        """Report what the model calls that the token may know of used and cost, grouped as you ask."""
        return await self._transport.json("GET", "/v1/costs", {"by": by, "since_ms": since_ms, "until_ms": until_ms, "sandbox": sandbox, "run": run, "agent": agent, "project": project, "model": model})

    async def set_budget(self, body: t.SetBudgetBody) -> t.SetBudgetResult:
        """Set a budget for model calls."""
        return await self._transport.json("PUT", "/v1/budgets", None, body=body)

    async def list_budgets(self) -> t.ListBudgetsResult:
        """List the budgets of what the token reaches and how much of each is spent."""
        return await self._transport.json("GET", "/v1/budgets", None)

    async def remove_budget(self, *, scope: Literal["sandbox", "run", "agent", "project", "home"], name: str | Literal[""] | None = None, period: Literal["ever", "day"] | None = None) -> dict[str, Any]:
        """Remove a budget."""
        return await self._transport.json("DELETE", "/v1/budgets", {"scope": scope, "name": name, "period": period})

    async def set_network(self, sandbox: str, body: t.SetNetworkBody | None = None) -> t.SandboxInfo:
        """Change the network policy; this works while the sandbox runs."""
        return await self._transport.json("PATCH", f"/v1/sandboxes/{segment(sandbox)}/network", None, body=body)

    async def list_connections(self, sandbox: str, *, after: int | None = None, limit: int | None = None, wait_ms: int | None = None) -> t.ListConnectionsResult:
        """List its connections by name, allowed and refused."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/connections", {"after": after, "limit": limit, "wait_ms": wait_ms})

    async def list_questions(self, sandbox: str) -> t.ListQuestionsResult:
        """List the names it wants to reach that nobody has allowed or refused yet."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/questions", None)

    async def answer_question(self, sandbox: str, body: t.AnswerQuestionBody) -> t.AnswerQuestionResult:
        """Allow or refuse a name that it wants to reach."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/questions/answer", None, body=body)

    async def forward_port(self, sandbox: str, body: t.ForwardPortBody) -> t.PortForward:
        """Forward a host port to a port inside."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/ports", None, body=body)

    async def list_ports(self, sandbox: str) -> t.ListPortsResult:
        """List port forwards."""
        return await self._transport.json("GET", f"/v1/sandboxes/{segment(sandbox)}/ports", None)

    async def wait_for_port(self, sandbox: str, port: int, body: t.WaitForPortBody | None = None) -> t.WaitForPortResult:
        """Wait until something inside listens on a port."""
        return await self._transport.json("POST", f"/v1/sandboxes/{segment(sandbox)}/ports/{segment(port)}/wait", None, body=body)

    async def remove_port(self, sandbox: str, port: int) -> dict[str, Any]:
        """Remove a port forward."""
        return await self._transport.json("DELETE", f"/v1/sandboxes/{segment(sandbox)}/ports/{segment(port)}", None)

    async def list_images(self) -> t.ListImagesResult:
        """List images."""
        return await self._transport.json("GET", "/v1/images", None)

    async def make_image(self, body: t.MakeImageBody) -> t.Image:
        """Create an image from the host, a Debian suite, or a directory or archive on the daemon’s machine."""
        return await self._transport.json("POST", "/v1/images", None, body=body)

    async def import_image(self, content: bytes | Iterable[bytes] | AsyncIterable[bytes], *, name: str | None = None) -> t.Image:
        """Create an image from an uploaded archive: a root filesystem, docker save or OCI (plain, gz, zst)."""
        return await self._transport.json("POST", "/v1/images/import", {"name": name}, content=content)

    def pull_image(self, body: t.PullImageBody) -> AsyncGenerator[ServerEvent, None]:
        """Pull an image from its registry, or update it to a newer one of the same name."""
        return self._transport.events("POST", "/v1/images/pull", None, body=body)

    async def send_build_context(self, content: bytes | Iterable[bytes] | AsyncIterable[bytes]) -> t.SendBuildContextResult:
        """Upload the build context as a tar."""
        return await self._transport.json("POST", "/v1/images/build/contexts", None, content=content)

    def build_image(self, body: t.BuildImageBody) -> AsyncGenerator[ServerEvent, None]:
        """Build an image from a Dockerfile."""
        return self._transport.events("POST", "/v1/images/build", None, body=body)

    async def commit_image(self, body: t.CommitImageBody) -> t.Image:
        """Create an image from a snapshot, or from a sandbox as it is now."""
        return await self._transport.json("POST", "/v1/images/commit", None, body=body)

    def push_image(self, image: str, body: t.PushImageBody | None = None) -> AsyncGenerator[ServerEvent, None]:
        """Push an image to a registry; only missing layers are sent."""
        return self._transport.events("POST", f"/v1/images/{segment(image)}/push", None, body=body)

    def export_image(self, image: str) -> AsyncGenerator[bytes, None]:
        """Export an image as one tar for docker, podman and OCI tools."""
        return self._transport.stream("GET", f"/v1/images/{segment(image)}/archive", None)

    async def prune_images(self, body: t.PruneImagesBody | None = None) -> t.PruneImagesResult:
        """Remove images and layers that nothing uses."""
        return await self._transport.json("POST", "/v1/images/prune", None, body=body)

    async def list_registries(self) -> t.ListRegistriesResult:
        """List the registries with a stored login."""
        return await self._transport.json("GET", "/v1/registries", None)

    async def login_registry(self, body: t.LoginRegistryBody) -> t.ListRegistriesResultItem:
        """Log in to a registry; the password is checked, then stored."""
        return await self._transport.json("POST", "/v1/registries", None, body=body)

    async def logout_registry(self, registry: str) -> dict[str, Any]:
        """Log out of a registry."""
        return await self._transport.json("DELETE", f"/v1/registries/{segment(registry)}", None)

    async def get_image(self, image: str) -> t.Image:
        """Inspect an image."""
        return await self._transport.json("GET", f"/v1/images/{segment(image)}", None)

    async def remove_image(self, image: str) -> dict[str, Any]:
        """Remove an image that nothing uses."""
        return await self._transport.json("DELETE", f"/v1/images/{segment(image)}", None)

    async def start_run(self, body: t.StartRunBody) -> t.StartRunResult:
        """Start an agent on a task; the call returns at once, and events report its progress."""
        return await self._transport.json("POST", "/v1/runs", None, body=body)

    async def list_runs(self, *, state: Literal["pending", "creating", "running", "completing", "completed", "failed"] | None = None, sandbox: str | None = None, project: str | None = None, label: str | None = None, before: str | None = None, limit: int | None = None) -> t.ListRunsResult:
        """List runs, newest first."""
        return await self._transport.json("GET", "/v1/runs", {"state": state, "sandbox": sandbox, "project": project, "label": label, "before": before, "limit": limit})

    async def list_agents(self) -> t.ListAgentsResult:
        """List the agents that can be started: those that ship, and those from files of the operator."""
        return await self._transport.json("GET", "/v1/agents", None)

    async def compare_runs(self, *, a: str, b: str) -> t.CompareRunsResult:
        """Compare two runs step by step, and the files they produced."""
        return await self._transport.json("GET", "/v1/runs/compare", {"a": a, "b": b})

    async def get_run(self, run: str) -> t.GetRunResult:
        """Inspect a run and its state changes."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}", None)

    async def remove_run(self, run: str) -> dict[str, Any]:
        """Remove a run that has ended, with its events, its steps and the sandbox made for it."""
        return await self._transport.json("DELETE", f"/v1/runs/{segment(run)}", None)

    async def get_run_result(self, run: str) -> t.GetRunResultResult:
        """Get the result of a run that has ended."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/result", None)

    async def list_run_events(self, run: str, *, after: int | None = None, types: str | None = None, limit: int | None = None) -> t.ListRunEventsResult:
        """List events of a run after a sequence number."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/events", {"after": after, "types": types, "limit": limit})

    def stream_run_events(self, run: str, *, after: int | None = None, types: str | None = None) -> AsyncGenerator[ServerEvent, None]:
        """Stream events of a run as they happen, from any sequence number (Last-Event-ID or `after`)."""
        return self._transport.events("GET", f"/v1/runs/{segment(run)}/events/stream", {"after": after, "types": types})

    async def get_trajectory(self, run: str, *, after: int | None = None, limit: int | None = None) -> t.GetTrajectoryResult:
        """Show what an agent did, without noise and with repetitions folded."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/trajectory", {"after": after, "limit": limit})

    def read_run_body(self, run: str, body: str) -> AsyncGenerator[bytes, None]:
        """Read the full text that an event shortens."""
        return self._transport.stream("GET", f"/v1/runs/{segment(run)}/bodies/{segment(body)}", None)

    async def tell_run(self, run: str, body: t.TellRunBody) -> t.TellRunResult:
        """Send a message to an agent while it works."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/messages", None, body=body)

    async def list_run_messages(self, run: str) -> t.ListRunMessagesResult:
        """List messages to an agent and the delivery state of each."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/messages", None)

    async def withdraw_message(self, run: str, message: str) -> t.TellRunResult:
        """Withdraw a message that was not delivered yet."""
        return await self._transport.json("DELETE", f"/v1/runs/{segment(run)}/messages/{segment(message)}", None)

    async def interrupt_run(self, run: str, body: t.InterruptRunBody | None = None) -> t.StartRunResult:
        """Interrupt the current turn of the agent, and end every process it started."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/interrupt", None, body=body)

    async def pause_run(self, run: str) -> t.StartRunResult:
        """Pause a run: nothing of it runs until it is resumed."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/pause", None)

    async def resume_run(self, run: str) -> t.StartRunResult:
        """Resume a paused run."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/resume", None)

    async def stop_run(self, run: str, body: t.StopRunBody | None = None) -> t.StartRunResult:
        """Cancel a run; its sandbox, events and steps stay until it is removed."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/stop", None, body=body)

    async def list_steps(self, run: str) -> t.ListStepsResult:
        """List the steps that a run can be rewound to or forked from."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/steps", None)

    async def take_step(self, run: str, body: t.TakeStepBody | None = None) -> t.CompareRunsResultStepA1:
        """Record the current state as a step."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/steps", None, body=body)

    async def rewind_run(self, run: str, body: t.RewindRunBody) -> t.StartRunResult:
        """Rewind a run to a step, files and conversation included, and continue from there."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/rewind", None, body=body)

    async def fork_run(self, run: str, body: t.ForkRunBody | None = None) -> t.StartRunResult:
        """Fork a run: a second run continues from a step of this one."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/fork", None, body=body)

    async def race_run(self, run: str, body: t.RaceRunBody) -> t.RaceRunResult:
        """Race several forks of one step, judge each, and merge the best; the call returns at once."""
        return await self._transport.json("POST", f"/v1/runs/{segment(run)}/races", None, body=body)

    async def list_races(self, run: str) -> t.ListRacesResult:
        """List the races of a run."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/races", None)

    async def get_race(self, run: str, race: int) -> t.RaceRunResult:
        """Inspect a race: its forks, what the judge said of each, and the winner."""
        return await self._transport.json("GET", f"/v1/runs/{segment(run)}/races/{segment(race)}", None)

    async def report_event(self, body: t.ReportEventBody) -> t.ReportEventResult:
        """Report an event of the calling run."""
        return await self._transport.json("POST", "/v1/run/events", None, body=body)

    async def fetch_messages(self, *, after: int | None = None, wait_s: float | None = None) -> t.FetchMessagesResult:
        """Fetch messages to the calling run, and wait for one if asked."""
        return await self._transport.json("GET", "/v1/run/messages", {"after": after, "wait_s": wait_s})

    async def report_heartbeat(self, body: t.ReportHeartbeatBody | None = None) -> t.ReportHeartbeatResult:
        """Send a heartbeat for the calling run."""
        return await self._transport.json("POST", "/v1/run/heartbeat", None, body=body)

    async def report_done(self, body: t.ReportDoneBody | None = None) -> dict[str, Any]:
        """Report that the task is done, or that it cannot be done."""
        return await self._transport.json("POST", "/v1/run/done", None, body=body)

    async def list_run_webhooks(self) -> t.ListRunWebhooksResult:
        """List webhooks for run events, and how many events wait for each."""
        return await self._transport.json("GET", "/v1/run-webhooks", None)

    async def add_run_webhook(self, body: t.AddRunWebhookBody) -> t.ListRunWebhooksResultItem:
        """Post events of one run or of all to a URL, in order, signed as Standard Webhooks specifies."""
        return await self._transport.json("POST", "/v1/run-webhooks", None, body=body)

    async def resume_run_webhook(self, webhook: str, body: t.ResumeRunWebhookBody | None = None) -> t.ListRunWebhooksResultItem:
        """Resume a webhook that was stopped, or send events again from a sequence number."""
        return await self._transport.json("POST", f"/v1/run-webhooks/{segment(webhook)}/resume", None, body=body)

    async def remove_run_webhook(self, webhook: str) -> dict[str, Any]:
        """Remove a webhook for run events."""
        return await self._transport.json("DELETE", f"/v1/run-webhooks/{segment(webhook)}", None)

    async def whoami(self) -> t.WhoamiResult:
        """Show which token calls and what it may reach."""
        return await self._transport.json("GET", "/v1/whoami", None)

    async def create_page_link(self) -> t.CreatePageLinkResult:
        """Create a link that signs a browser in once, with the scope of this token."""
        return await self._transport.json("POST", "/v1/page/links", None)

    async def list_projects(self) -> t.ListProjectsResult:
        """List projects with their cost and revenue."""
        return await self._transport.json("GET", "/v1/projects", None)

    async def create_project(self, body: t.CreateProjectBody) -> t.ListProjectsResultItem:
        """Create a project."""
        return await self._transport.json("POST", "/v1/projects", None, body=body)

    async def summarise_projects(self) -> t.SummariseProjectsResult:
        """Sum up all projects, and name those that look abandoned."""
        return await self._transport.json("GET", "/v1/projects/summary", None)

    async def compare_projects(self, *, a: str, b: str) -> t.CompareProjectsResult:
        """Compare two projects; the verdicts say when there is too little data."""
        return await self._transport.json("GET", "/v1/projects/compare", {"a": a, "b": b})

    async def get_project(self, project: str) -> t.GetProjectResult:
        """Inspect a project with its agents, experiments, metrics and notes."""
        return await self._transport.json("GET", f"/v1/projects/{segment(project)}", None)

    async def limit_project(self, project: str, body: t.LimitProjectBody) -> t.ListProjectsResultItem:
        """Change the cap or the time limit of a project."""
        return await self._transport.json("PATCH", f"/v1/projects/{segment(project)}", None, body=body)

    async def kill_project(self, project: str, *, delete: Literal["true", "false"] | None = None) -> t.ListProjectsResultItem:
        """End a project and its agents; with `delete`, only its ledger stays."""
        return await self._transport.json("DELETE", f"/v1/projects/{segment(project)}", {"delete": delete})

    async def deploy_agent(self, project: str, body: t.DeployAgentBody) -> t.DeployAgentResult:
        """Deploy an agent and start its first run in a sandbox of its own."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/agents", None, body=body)

    async def change_agent(self, project: str, agent: str, body: t.ChangeAgentBody) -> t.DeployAgentResult:
        """Pause, resume or kill an agent."""
        return await self._transport.json("PATCH", f"/v1/projects/{segment(project)}/agents/{segment(agent)}", None, body=body)

    async def run_agent(self, project: str, agent: str) -> t.GetProjectResultAgentLastRun1:
        """Run an agent again now."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/agents/{segment(agent)}/runs", None)

    async def list_project_runs(self, project: str) -> t.ListProjectRunsResult:
        """List the latest runs of a project’s agents."""
        return await self._transport.json("GET", f"/v1/projects/{segment(project)}/runs", None)

    async def report_metric(self, project: str, body: t.ReportMetricBody) -> t.ListProjectsResultItemMetrics:
        """Report revenue, a cost or any other number, with its source."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/metrics", None, body=body)

    async def write_project_note(self, project: str, body: t.WriteProjectNoteBody) -> dict[str, Any]:
        """Add a note on what was learnt; it moves to production with the project."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/notes", None, body=body)

    async def list_ledger(self, project: str, *, after: int | None = None, limit: int | None = None) -> t.ListLedgerResult:
        """Show the ledger of a project, including deleted ones."""
        return await self._transport.json("GET", f"/v1/projects/{segment(project)}/ledger", {"after": after, "limit": limit})

    async def evaluate_project(self, project: str, body: t.EvaluateProjectBody | None = None) -> t.EvaluateProjectResult:
        """Evaluate a project: criteria, recommendation, and what would be promoted, with a digest to confirm."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/evaluation", None, body=body)

    async def promote_project(self, project: str, body: t.PromoteProjectBody) -> t.PromoteProjectResult:
        """Promote what passed to production. Safe to repeat."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/promotion", None, body=body)

    async def start_experiment(self, project: str, body: t.StartExperimentBody) -> t.StartExperimentResult:
        """Start an experiment, or log one that runs elsewhere."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/experiments", None, body=body)

    async def get_experiment(self, project: str, experiment: int) -> t.StartExperimentResult:
        """Inspect an experiment with its trials and verdicts."""
        return await self._transport.json("GET", f"/v1/projects/{segment(project)}/experiments/{segment(experiment)}", None)

    async def complete_experiment(self, project: str, experiment: int, body: t.CompleteExperimentBody) -> t.StartExperimentResult:
        """Record the results of a logged experiment, or stop a running one."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/experiments/{segment(experiment)}/complete", None, body=body)

    async def score_trial(self, project: str, experiment: int, body: t.ScoreTrialBody) -> t.StartExperimentResult:
        """Score a trial by hand."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/experiments/{segment(experiment)}/scores", None, body=body)

    async def take_project_snapshot(self, project: str, body: t.TakeProjectSnapshotBody) -> t.TakeProjectSnapshotResult:
        """Snapshot a project: its data, agents, workspace and sandboxes at one instant."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/snapshots", None, body=body)

    async def list_project_snapshots(self, project: str) -> t.ListProjectSnapshotsResult:
        """List the snapshots of a project."""
        return await self._transport.json("GET", f"/v1/projects/{segment(project)}/snapshots", None)

    async def restore_project_snapshot(self, project: str, snapshot: int) -> t.GetProjectResult:
        """Restore a project from a snapshot; the ledger stays."""
        return await self._transport.json("POST", f"/v1/projects/{segment(project)}/snapshots/{segment(snapshot)}/restore", None)

    async def list_agent_types(self) -> t.ListAgentTypesResult:
        """List agent types with the schema of their configuration."""
        return await self._transport.json("GET", "/v1/agent-types", None)

    async def list_production(self) -> t.ListProductionResult:
        """List the agents in production with their stage."""
        return await self._transport.json("GET", "/v1/production", None)

    async def change_production_agent(self, agent: str, body: t.ChangeProductionAgentBody | None = None) -> t.ChangeProductionAgentResult:
        """Pause, resume or kill an agent in production, or change its configuration."""
        return await self._transport.json("PATCH", f"/v1/production/{segment(agent)}", None, body=body)

    async def run_production_agent(self, agent: str) -> t.ListProjectRunsResult:
        """Run the lane of an agent in production once, now."""
        return await self._transport.json("POST", f"/v1/production/{segment(agent)}/runs", None)

    async def roll_back(self, agent: str, body: t.RollBackBody | None = None) -> t.ChangeProductionAgentResult:
        """Roll an agent back at once: the version before it takes over again."""
        return await self._transport.json("POST", f"/v1/production/{segment(agent)}/rollback", None, body=body)

    async def list_news_targets(self) -> t.ListNewsTargetsResult:
        """List webhooks and mail addresses that news of projects go to."""
        return await self._transport.json("GET", "/v1/news/targets", None)

    async def add_news_target(self, body: t.AddNewsTargetBody) -> t.ListNewsTargetsResultItem:
        """Add a webhook for news of projects, signed as Standard Webhooks specifies, or a mail address."""
        return await self._transport.json("POST", "/v1/news/targets", None, body=body)

    async def remove_news_target(self, *, url: str) -> dict[str, Any]:
        """Remove a webhook or a mail address."""
        return await self._transport.json("DELETE", "/v1/news/targets", {"url": url})
