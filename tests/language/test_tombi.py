"""The examples and the schemas in a real editor's hands: tombi, from PyPI, as a process and without a network.

`tombi lint --offline` reads the schema that a file's first line names from the disk; nothing is fetched.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib.metadata import files
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples").rglob("*.toml"))
TOMBI = next(str(file.locate().resolve()) for file in files("tombi") or () if file.name in ("tombi", "tombi.exe"))


def lint(*paths: Path) -> list[dict[str, Any]]:
    """Everything that tombi says of some files."""
    out = ["--diagnostics-format", "json", "--diagnostics-file", "/dev/stdout"]
    command = [TOMBI, "lint", "--offline", "--quiet", *out, *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout or "[]")


def test_tombi_finds_nothing_in_the_examples() -> None:
    """No error and no warning, but that an empty key, which a card has for the model itself, is rare."""
    assert [each for each in lint(*FILES) if each["code"] != "key-empty"] == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("seq = 256", "sqe = 256", "key-not-allowed"),
        ("dp = 2", "dp = 0", "integer-minimum"),
        ('over = ["dp"]', "over = 1", "type-mismatch"),
        ("meshlang = 1", "", "table-key-required"),
    ],
)
def test_tombi_finds_what_breaks_the_schema(tmp_path: Path, old: str, new: str, code: str) -> None:
    """A key or value that the language lacks is an error in the editor too: the schema is read."""
    text = (ROOT / "examples" / "llama_tiny_cpu.toml").read_text()
    assert old in text
    path = tmp_path / "spec.toml"
    path.write_text(text.replace("../schema", f"{ROOT}/schema").replace(old, new, 1))
    assert [(each["level"], each["code"]) for each in lint(path)] == [("error", code)]


class Server:
    """tombi's language server on a pipe: requests, and their answers."""

    def __init__(self, folder: Path) -> None:
        command = [TOMBI, "lsp", "--offline"]
        self.process = subprocess.Popen(command, cwd=folder, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL)
        self.count = 0
        self.watch = Timer(60, self.process.kill)
        self.watch.start()

    def send(self, method: str, params: Any, **more: Any) -> None:
        """One message."""
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self.write(body)

    def write(self, body: bytes) -> None:
        """A message with its header."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        """The answer to a request."""
        self.count += 1
        self.send(method, params, id=self.count)
        while True:
            message = self.receive()
            if message.get("id") == self.count and "method" not in message:
                return message.get("result")

    def wait(self, method: str) -> None:
        """Until the server sends a message of its own."""
        while self.receive().get("method") != method:
            pass

    def receive(self) -> dict[str, Any]:
        """The next message; what the server asks is answered with nothing."""
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        assert length, "the server has ended"
        message = json.loads(self.process.stdout.read(length))
        if "method" in message and "id" in message:
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": None}).encode()
            self.write(body)
        return message


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that is ready, and ends with the test."""
    found = Server(tmp_path)
    try:
        found.ask("initialize", {"processId": None, "rootUri": tmp_path.as_uri(), "capabilities": {}})
        found.send("initialized", {})
        yield found
    finally:
        found.watch.cancel()
        found.process.kill()
        found.process.communicate()


@pytest.mark.parametrize(
    ("table", "keys"),
    [
        ("[sizes]", {"batch", "seq", "accumulation"}),
        ("[store]", {"over", "after_forward", "except"}),
        ("[strategy]", {"ring_attention", "ulysses"}),
    ],
)
def test_tombi_completes_keys(tmp_path: Path, server: Server, table: str, keys: set[str]) -> None:
    """On an empty line under a header, the editor offers the keys of that table."""
    text = f'#:schema {ROOT}/schema/spec.json\nmeshlang = 1\nmodel = "llama/tiny"\n\n{table}\n\n'
    path = tmp_path / "spec.toml"
    path.write_text(text)
    document = {"uri": path.as_uri(), "languageId": "toml", "version": 1, "text": text}
    server.send("textDocument/didOpen", {"textDocument": document})
    server.wait("textDocument/publishDiagnostics")  # has read the schema by now
    place = {"textDocument": {"uri": path.as_uri()}, "position": {"line": 5, "character": 0}}
    found = server.ask("textDocument/completion", place)
    items = found["items"] if isinstance(found, dict) else found
    assert keys <= {item["label"] for item in items or ()}
