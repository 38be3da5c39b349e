"""Speaks to the daemon of Coppice over HTTP. Needs nothing but the standard library.

    from sandbox.manager import get_sandbox

    sandbox = get_sandbox()
    project_id = sandbox.create_project(name="My Experiment")

The daemon is found as the command line finds it: COPPICE_URL and COPPICE_TOKEN, or the files of COPPICE_HOME.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request


class SandboxError(Exception):
    """What the daemon refused: `code` for programs, the message and the next step for people."""

    def __init__(self, code, message, hint=""):
        super().__init__(message if hint == "" else f"{message}\n{hint}")
        self.code = code
        self.hint = hint


class Project:
    """A project as it was when it was read."""

    def __init__(self, data):
        self.data = data
        self.id = data["id"]
        self.name = data["name"]
        self.description = data["description"]
        self.status = data["status"]
        self.workspace_path = data["workspace"]
        self.agents = data.get("agents", [])

    def get_metrics(self):
        """Cost, revenue and profit in dollars, and the return in percent of the cost."""
        metrics = self.data["metrics"]
        return {
            "total_cost": metrics["cost_usd"],
            "total_revenue": metrics["revenue_usd"],
            "profit": metrics["profit_usd"],
            "roi": metrics["roi"],
            "tokens": metrics["tokens"],
            "agent_count": metrics["agents"],
            "active_agents": metrics["active_agents"],
            "runs": metrics["runs"],
            "failed_runs": metrics["failed_runs"],
        }


class Sandbox:
    """Creates projects, deploys agents in them, evaluates them and promotes the winners."""

    def __init__(self, url, token):
        self._url = url.rstrip("/")
        self._token = token

    def create_project(self, name, description=""):
        return self._call("POST", "/v1/projects", {"name": name, "description": description})["id"]

    def list_projects(self):
        return [Project(item) for item in self._call("GET", "/v1/projects")["items"]]

    def get_project(self, project_id):
        return Project(self._call("GET", f"/v1/projects/{_quote(project_id)}"))

    def get_summary(self):
        return self._call("GET", "/v1/projects/summary")

    def deploy_agent(self, project_id, agent_type, name=None, config=None):
        body = {"type": agent_type, "config": config or {}}
        if name is not None:
            body["name"] = name
        return self._call("POST", f"/v1/projects/{_quote(project_id)}/agents", body)["id"]

    def report_metric(self, project_id, name, value, agent_id=None, source="hand", key=None):
        body = {"name": name, "value": value, "source": source}
        if agent_id is not None:
            body["agent"] = agent_id
        if key is not None:
            body["key"] = key
        return self._call("POST", f"/v1/projects/{_quote(project_id)}/metrics", body)

    def evaluate_project(self, project_id, council=False):
        return self._call("POST", f"/v1/projects/{_quote(project_id)}/evaluation", {"council": council})

    def promote_project(self, project_id, digest=None):
        """Promotes what was evaluated: by this call, or before, where the digest is given."""
        if digest is None:
            digest = self.evaluate_project(project_id)["digest"]
        promotion = self._call("POST", f"/v1/projects/{_quote(project_id)}/promotion", {"digest": digest})
        return {
            "success": True,
            "project_id": promotion["project"],
            "agents_migrated": len(promotion["agents"]),
            "agents": [agent["id"] for agent in promotion["agents"]],
        }

    def kill_project(self, project_id, delete_workspace=False):
        query = "?delete=true" if delete_workspace else ""
        self._call("DELETE", f"/v1/projects/{_quote(project_id)}{query}")

    def log_experiment(self, project_id, name, hypothesis="", config=None):
        body = {"name": name, "hypothesis": hypothesis, "config": config or {}}
        return self._call("POST", f"/v1/projects/{_quote(project_id)}/experiments", body)["id"]

    def complete_experiment(self, experiment_id, results=None, success=True):
        project_id = self._project_of(experiment_id)
        path = f"/v1/projects/{project_id}/experiments/{int(experiment_id)}/complete"
        return self._call("POST", path, {"results": results or {}, "success": success})

    def _project_of(self, experiment_id):
        for project in self.list_projects():
            if any(each["id"] == experiment_id for each in self.get_project(project.id).data["experiments"]):
                return project.id
        raise SandboxError("not_found", f"there is no experiment {experiment_id}")

    def _call(self, method, path, body=None):
        request = urllib.request.Request(self._url + path, method=method)
        request.add_header("authorization", f"Bearer {self._token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except urllib.error.URLError as error:
            raise SandboxError(
                "unavailable", f"the daemon does not answer at {self._url}: {error.reason}", "Start it: coppice up --detach"
            ) from None


def get_sandbox(home=None):
    """The daemon of COPPICE_URL and COPPICE_TOKEN, or of a home: COPPICE_HOME, or /var/lib/coppice."""
    home = home or os.environ.get("COPPICE_HOME") or "/var/lib/coppice"
    url, token = os.environ.get("COPPICE_URL"), os.environ.get("COPPICE_TOKEN")
    if url is None:
        url = json.loads(_read(home, "daemon.json"))["url"]
    if token is None:
        token = _read(home, "token").strip()
    return Sandbox(url, token)


def _read(home, name):
    try:
        with open(os.path.join(home, name), encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise SandboxError("unavailable", f"no daemon runs on {home}: {error}", "Start it: coppice up --detach") from None


def _refusal(error):
    try:
        problem = json.load(error)
        return SandboxError(problem["code"], problem["detail"], problem.get("hint", ""))
    except (ValueError, KeyError, TypeError):
        return SandboxError("internal", f"the daemon answered {error.code}")


def _quote(text):
    return urllib.parse.quote(str(text), safe="")
