"""An object store on this machine whose requests take as long as those of one that is far away.

    python -m benchmarks.s3_stand_in [--put-ms 30] [--get-ms 10] [--port 9000]

Keeps objects in memory, with what of S3's API a broker uses; a PUT is answered after a pause, and so is
everything else. Prints the environment that leads brokers there, and goes on until it is stopped.
`GET /-/requests` tells how many requests of each kind there were.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from benchmarks import command_line
from benchmarks.brokers import HOST, free_port

BUCKET: Final = "sluice"
KEYS: Final = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
LISTED_MAX: Final = 1_000
_ISO: Final = "2026-01-01T00:00:00.000Z"


class Request(NamedTuple):
    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class Answer(NamedTuple):
    status: HTTPStatus
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = None  # of what a HEAD would give


def _failed(status: HTTPStatus, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode())


class Objects:
    """The objects of all buckets, by bucket and key."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self._objects: dict[str, bytes] = {}
        self._written: dict[str, str] = {}
        self._keys: list[str] = []
        self._uploads: dict[str, dict[int, bytes]] = {}

    def answer(self, request: Request) -> Answer:
        method, key, query = request.method, request.key, request.query
        if "uploads" in query or "uploadId" in query:
            return self._upload(request)
        if method == "PUT":
            return self._put(request) if "/" in key else Answer(HTTPStatus.OK)
        if method == "POST":
            found = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
            for each in found:
                self._delete(f"{key.partition('/')[0]}/{each}")
            told = "".join(f"<Deleted><Key>{each}</Key></Deleted>" for each in found)
            return Answer(HTTPStatus.OK, f"<DeleteResult>{told}</DeleteResult>".encode())
        if method == "DELETE":
            self._delete(key)
            return Answer(HTTPStatus.NO_CONTENT)
        if "/" not in key.strip("/"):
            return self._list(key.strip("/") + "/", query)
        return self._get(request)

    def _get(self, request: Request) -> Answer:
        body = self._objects.get(request.key)
        if body is None:
            return _failed(HTTPStatus.NOT_FOUND, "NoSuchKey")
        headers = [("ETag", _etag(body)), ("Last-Modified", self._written[request.key])]
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if asked is None:
            part, status = body, HTTPStatus.OK
        else:
            size = len(body)
            first = int(asked[1]) if asked[1] else max(0, size - int(asked[2]))
            last = min(int(asked[2]), size - 1) if asked[1] and asked[2] else size - 1
            part, status = body[first : last + 1], HTTPStatus.PARTIAL_CONTENT
            headers.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        if request.method == "HEAD":
            return Answer(status, b"", tuple(headers), len(part))
        return Answer(status, part, tuple(headers))

    def _put(self, request: Request) -> Answer:
        known = self._objects.get(request.key)
        if known is not None and request.headers.get("if-none-match") == "*":
            return _failed(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
        wanted = request.headers.get("if-match")
        if wanted is not None and (known is None or _etag(known) != wanted):
            return _failed(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
        return self._keep(request.key, request.body)

    def _keep(self, key: str, body: bytes) -> Answer:
        if key not in self._objects:
            insort(self._keys, key)
        self._objects[key] = body
        self._written[key] = formatdate(usegmt=True)
        return Answer(HTTPStatus.OK, b"", (("ETag", _etag(body)),))

    def _delete(self, key: str) -> None:
        if self._objects.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def _upload(self, request: Request) -> Answer:
        upload = request.query.get("uploadId", "")
        if request.method == "PUT":
            self._uploads[upload][int(request.query["partNumber"])] = request.body
            return Answer(HTTPStatus.OK, b"", (("ETag", _etag(request.body)),))
        if request.method == "DELETE":
            self._uploads.pop(upload, None)
            return Answer(HTTPStatus.NO_CONTENT)
        if not upload:
            upload = f"upload-{len(self._uploads)}-{self.requests.total()}"
            self._uploads[upload] = {}
            text = f"<UploadId>{upload}</UploadId>"
            return Answer(
                HTTPStatus.OK,
                f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode(),
            )
        if request.headers.get("if-none-match") == "*" and request.key in self._objects:
            return _failed(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")
        parts = self._uploads.pop(upload)
        body = b"".join([parts[number] for number in sorted(parts)])
        self._keep(request.key, body)
        tag = f"<ETag>{escape(_etag(body))}</ETag>"
        return Answer(
            HTTPStatus.OK,
            f"<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>".encode(),
        )

    def _list(self, bucket: str, query: dict[str, str]) -> Answer:
        prefix, delimiter = bucket + query.get("prefix", ""), query.get("delimiter", "")
        after = bucket + (query.get("continuation-token") or query.get("start-after") or "")
        at = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after) if after != bucket else 0)
        rows: list[str] = []
        folders: dict[str, None] = {}
        token = ""
        while at < len(self._keys) and self._keys[at].startswith(prefix):
            key = self._keys[at]
            at += 1
            if delimiter and delimiter in key[len(prefix) :]:
                folders[prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter] = None
                continue
            body = self._objects[key]
            rows.append(
                f"<Contents><Key>{escape(key[len(bucket) :])}</Key><LastModified>{_ISO}</LastModified>"
                f"<ETag>{escape(_etag(body))}</ETag><Size>{len(body)}</Size></Contents>"
            )
            if len(rows) == LISTED_MAX:
                token = f"<NextContinuationToken>{escape(key[len(bucket) :])}</NextContinuationToken>"
                break
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each[len(bucket) :])}</Prefix></CommonPrefixes>"
            for each in folders
        )
        text = (
            f"<ListBucketResult><Name>{bucket[:-1]}</Name><KeyCount>{len(rows)}</KeyCount>"
            f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>{token}{''.join(rows)}{common}"
            "</ListBucketResult>"
        )
        return Answer(HTTPStatus.OK, text.encode(), (("Content-Type", "application/xml"),))


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body[:4_096] + len(body).to_bytes(8, "big")).hexdigest()}"'


class Server:
    """Answers requests on open connections, each after its pause."""

    def __init__(self, put_s: float, get_s: float) -> None:
        self._objects = Objects()
        self._put_s = put_s
        self._get_s = get_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while (request := await _read(reader)) is not None:
                writer.write(await self._answer(request))
                await writer.drain()
        writer.close()

    async def _answer(self, request: Request) -> bytes:
        if request.key == "-/requests":
            body = json.dumps(self._objects.requests).encode()
            return _encoded(Answer(HTTPStatus.OK, body))
        self._objects.requests[request.method] += 1
        await asyncio.sleep(self._put_s if request.method == "PUT" else self._get_s)
        answer = self._objects.answer(request)
        if request.method == "HEAD" and answer.length is None:
            answer = answer._replace(body=b"", length=len(answer.body))
        return _encoded(answer)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    line = await reader.readline()
    if not line:
        return None
    method, target, _ = line.decode().split(" ")
    headers = {}
    while (line := await reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Request(method, unquote(parts.path.lstrip("/")), query, headers, body)


def _encoded(answer: Answer) -> bytes:
    length = len(answer.body) if answer.length is None else answer.length
    headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n{headers}Content-Length: {length}\r\n\r\n"
    )
    return head.encode() + answer.body


@contextmanager
def s3_stand_in(put_ms: float, get_ms: float = 0.0) -> Iterator[dict[str, str]]:
    """Run one in a process of its own; gives the environment that leads there."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.s3_stand_in", "--port", str(port)]
    command += ["--put-ms", str(put_ms), "--get-ms", str(get_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        environment = dict(process.stdout.readline().strip().partition("=")[::2] for _ in range(4))
        try:
            yield environment
        finally:
            process.kill()


async def run(port: int, put_ms: float, get_ms: float) -> None:
    server = await asyncio.start_server(Server(put_ms / 1000, get_ms / 1000).serve, HOST, port, limit=1 << 20)
    environment = {"AWS_ENDPOINT_URL": f"http://{HOST}:{port}", **KEYS}
    for name, value in environment.items():
        print(f"{name}={value}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--put-ms", type=float, default=30.0)
    parser.add_argument("--get-ms", type=float, default=10.0)
    parser.add_argument("--port", type=int, default=9000)
    given = parser.parse_args()
    asyncio.run(run(given.port, given.put_ms, given.get_ms))


if __name__ == "__main__":
    main()
