"""The S3 endpoint of tests: of several that put what is to be put once, one does."""

import http.client
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.storage_faults.s3 import BUCKET, s3_endpoint

SIGNED = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"
CLIENTS = 3


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before_s)


def test_one_of_several_conditional_puts_is_done(hasty_threads: None) -> None:
    with s3_endpoint() as environment:
        address = environment["AWS_ENDPOINT_URL"].removeprefix("http://")
        for number in range(20):
            codes: list[int] = []
            all_there = threading.Barrier(CLIENTS)

            def put(path: str, codes: list[int], all_there: threading.Barrier) -> None:
                connection = http.client.HTTPConnection(address)
                connection.connect()
                all_there.wait()
                connection.request("PUT", path, b"x", {"If-None-Match": "*", "Authorization": SIGNED})
                codes.append(connection.getresponse().status)
                connection.close()

            told = (f"/{BUCKET}/{number}", codes, all_there)
            threads = [threading.Thread(target=put, args=told) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(codes) == [200, *[412] * (CLIENTS - 1)]
