"""A stand-in for the hub: its HTTP interface for models on a port of this machine, with commits kept in memory.

Written from the requests of huggingface_hub's client. It answers as the hub does: files are regular or LFS by their
ending, LFS files are uploaded apart from the commit that names them, and a card is refused for the same faults of its
metadata. Tokens are `hf_write` and `hf_read`; the namespace of both is `me`.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from huggingface_hub import ModelCard

LFS_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".pkl")
REPOSITORY_ID = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")


@dataclass
class Commit:
    """A commit, with all files that the repository has after it."""

    sha: str
    message: str
    added: list[str]
    files: dict[str, bytes]


@dataclass
class StandIn:
    """What the server holds, and what it is to do wrong."""

    url: str = ""
    commits: dict[str, list[Commit]] = field(default_factory=dict)
    """Repository, or `repository@branch`, to its commits, the oldest first."""
    faults: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Repository to a step (create, preupload, commit) and its status."""
    uploads: dict[str, bytes] = field(default_factory=dict)
    """LFS files by their SHA-256."""
    cards: list[str] = field(default_factory=list)
    """Every card that was to be validated."""

    def files(self, repo_id: str) -> dict[str, bytes]:
        return self.commits[repo_id][-1].files

    def commit(self, repo_id: str, message: str, added: dict[str, bytes], deleted: Collection[str] = ()) -> Commit:
        history = self.commits[repo_id]
        before = history[-1].files if history else {}
        files = {name: content for name, content in before.items() if name not in deleted} | added
        sha = hashlib.sha1(f"{repo_id} {len(history)} {sorted(added)}".encode()).hexdigest()
        history.append(Commit(sha, message, sorted(added), files))
        return history[-1]


class Refusal(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None):
        self.status = status
        self.message = message
        self.code = code


def faults_of_card(text: str) -> list[str]:
    """What the hub finds wrong with a card's metadata (https://huggingface.co/docs/hub/model-cards)."""
    try:
        data = ModelCard(text).data  # which reads task, dataset and metrics of each entry of the model-index
    except (ValueError, yaml.YAMLError) as error:
        return [str(error)]
    faults = []
    for name in ("license", "pipeline_tag", "library_name", "tags", "datasets", "metrics"):
        values = [data.get(name)] if name in ("license", "pipeline_tag", "library_name") else data.get(name) or []
        if not (isinstance(values, list) and all(isinstance(value, str | None) for value in values)):
            faults.append(f'"{name}" must be a string, or an array of them')
    languages = data.get("language") or []
    for language in [languages] if isinstance(languages, str) else languages:
        if not re.fullmatch(r"[a-z]{2,3}|multilingual|code", str(language)):
            faults.append(f'"language" {language} must be an ISO code')
    if data.get("base_model") is not None and not REPOSITORY_ID.fullmatch(str(data["base_model"])):
        faults.append('"base_model" must be the id of a model')
    return faults


def branch_key(repo_id: str, branch: str) -> str:
    """The branch's name among the stand-in's commits."""
    return repo_id if branch == "main" else f"{repo_id}@{branch}"


class Handler(BaseHTTPRequestHandler):
    """Answers a request from the server's `StandIn`."""

    protocol_version = "HTTP/1.1"
    hub: StandIn

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self._read_body()
        try:
            for pattern, method in ROUTES:
                match = re.fullmatch(pattern, f"{self.command} {path}")
                if match:
                    return getattr(self, method)(body, *match.groups())
            raise Refusal(404, f"The stand-in has no {self.command} {path}")
        except Refusal as refusal:
            errors = [{"message": refusal.message}]
            headers = {"X-Error-Message": refusal.message, **({"X-Error-Code": refusal.code} if refusal.code else {})}
            self._send({"error": refusal.message, "errors": errors, "warnings": []}, refusal.status, headers)

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        payload = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(payload)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _check_write(self, repo_id: str, step: str) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("hf_write", "hf_read"):
            raise Refusal(401, "Invalid username or password.")
        if token == "hf_read":
            raise Refusal(403, f"You don't have the rights to write to {repo_id}")
        faulty_step, status = self.hub.faults.get(repo_id, (None, None))
        if step == faulty_step:
            raise Refusal(status, HTTPStatus(status).phrase)

    def _history(self, repo_id: str, revision: str = "main") -> list[Commit]:
        """Of a branch, or up to a commit."""
        if repo_id not in self.hub.commits:
            raise Refusal(404, "Repository not found", "RepoNotFound")
        branch = self.hub.commits.get(branch_key(repo_id, revision))
        if branch is not None:
            return branch
        for name, history in self.hub.commits.items():
            shas = [commit.sha for commit in history]
            if name.split("@")[0] == repo_id and revision in shas:
                return history[: shas.index(revision) + 1]
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def mend(self, body: bytes, repo_id: str) -> None:
        del self.hub.faults[repo_id]
        self._send({})

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        repo_id = f"{asked.get('organization') or 'me'}/{asked['name']}"
        self._check_write(repo_id, "create")
        if repo_id in self.hub.commits:
            return self._send({"error": "exists", "url": f"{self.hub.url}/{repo_id}"}, 409)
        self.hub.commits[repo_id] = []
        self.hub.commit(repo_id, "initial commit", {".gitattributes": b""})
        self._send({"url": f"{self.hub.url}/{repo_id}"})

    def validate(self, body: bytes) -> None:
        content = json.loads(body)["content"]
        self.hub.cards.append(content)
        faults = faults_of_card(content)
        if faults:
            raise Refusal(400, "; ".join(faults))
        self._send({"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo_id: str) -> None:
        self._check_write(repo_id, "preupload")
        self._history(repo_id)
        paths = [file["path"] for file in json.loads(body)["files"]]
        modes = {path: "lfs" if path.endswith(LFS_ENDINGS) else "regular" for path in paths}
        files = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
        self._send({"files": files})

    def lfs_batch(self, body: bytes, repo_id: str) -> None:
        self._check_write(repo_id, "lfs")
        objects = [
            {**item, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{item['oid']}"}}}
            for item in json.loads(body)["objects"]
        ]
        self._send({"transfer": "basic", "objects": objects})

    def lfs_upload(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "The content has another SHA-256")
        self.hub.uploads[oid] = body
        self._send({})

    def commit(self, body: bytes, repo_id: str, revision: str) -> None:
        self._check_write(repo_id, "commit")
        self._history(repo_id, revision)
        message, added, deleted = "", {}, []
        for line in body.decode().splitlines():
            key, value = (json.loads(line)[part] for part in ("key", "value"))
            if key == "header":
                message = value["summary"]
            elif key == "deletedFile":
                deleted.append(value["path"])
            else:
                lies_apart = key == "lfsFile"
                content = self.hub.uploads[value["oid"]] if lies_apart else base64.b64decode(value["content"])
                added[value["path"]] = content
        commit = self.hub.commit(branch_key(repo_id, revision), message, added, deleted)
        url = f"{self.hub.url}/{repo_id}/commit/{commit.sha}"
        self._send({"commitOid": commit.sha, "commitUrl": url, "success": True})

    def branch(self, body: bytes, repo_id: str, name: str) -> None:
        self._check_write(repo_id, "branch")
        if branch_key(repo_id, name) in self.hub.commits:
            return self._send({"error": "Reference already exists"}, 409)
        self.hub.commits[branch_key(repo_id, name)] = list(self._history(repo_id))
        self._send({})

    def may_write(self, body: bytes, repo_id: str) -> None:
        self._history(repo_id)
        self._check_write(repo_id, "auth-check")
        self._send({})

    def info(self, body: bytes, repo_id: str, revision: str | None = None) -> None:
        commit = self._history(repo_id, revision or "main")[-1]
        siblings = [{"rfilename": name} for name in sorted(commit.files)]
        self._send({"id": repo_id, "sha": commit.sha, "siblings": siblings})

    def tree(self, body: bytes, repo_id: str, revision: str) -> None:
        files = self._history(repo_id, revision)[-1].files
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in sorted(files.items())
        ]
        self._send(entries)

    def resolve(self, body: bytes, repo_id: str, revision: str, name: str) -> None:
        commit = self._history(repo_id, revision)[-1]
        if name not in commit.files:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        content = commit.files[name]
        self._send(content, headers={"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": commit.sha})


REPOSITORY = r"([\w.-]+/[\w.-]+)"
ROUTES = (
    (rf"DELETE /faults/{REPOSITORY}", "mend"),
    (r"POST /api/repos/create", "create"),
    (r"POST /api/validate-yaml", "validate"),
    (rf"POST /api/models/{REPOSITORY}/preupload/[^/]+", "preupload"),
    (rf"POST /{REPOSITORY}\.git/info/lfs/objects/batch", "lfs_batch"),
    (r"PUT /lfs/(\w+)", "lfs_upload"),
    (rf"POST /api/models/{REPOSITORY}/commit/([^/]+)", "commit"),
    (rf"POST /api/models/{REPOSITORY}/branch/(.+)", "branch"),
    (rf"GET /api/models/{REPOSITORY}/auth-check/write", "may_write"),
    (rf"GET /api/models/{REPOSITORY}/tree/([^/]+).*", "tree"),
    (rf"GET /api/models/{REPOSITORY}(?:/revision/([^/]+))?", "info"),
    (rf"(?:GET|HEAD) /{REPOSITORY}/resolve/([^/]+)/(.+)", "resolve"),
)


@contextmanager
def serve() -> Iterator[StandIn]:
    """A stand-in that answers while the block runs."""
    hub = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
