"""`python -m sluicemq.examples.demo`: devices, a queue, two groups of workers, and a broker that is killed.

Exits with 0 if every order that was confirmed to a device has been done by both groups.
"""

import multiprocessing
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from examples.demo import device, worker
from examples.demo.board import Board
from examples.demo.broker_process import BrokerProcess
from examples.demo.report import Books

REGIONS = ("eu", "us", "asia", "africa")
ORDERS_PER_SECOND = 200  # of each device
WORKERS = {"kitchen": 2, "audit": 1}
KILL_AFTER_S = 8
DOWN_S = 1.5
GO_ON_S = 8
DRAIN_TIMEOUT_S = 30


class Demo:
    """The processes of one run; `close` ends all of them."""

    def __init__(self, directory: Path) -> None:
        self.books = Books(tuple(WORKERS))
        self.broker = BrokerProcess(directory)
        # a spawned process holds no lock of ours, and nothing of the terminal
        self._context = multiprocessing.get_context("spawn")
        self._reports = self._context.Queue()
        self._devices_stop = self._context.Event()
        self._workers_stop = self._context.Event()
        self._devices: list[BaseProcess] = []
        self._workers: list[BaseProcess] = []

    def run(self, board: Board) -> None:
        """The whole story, told on `board`."""
        took_s = self.broker.start()
        ports = self.broker.ports
        board.say(
            f"broker started in {took_s:.1f} s (pid {self.broker.pid}): "
            f"MQTT on port {ports['mqtt']}, AMQP on port {ports['amqp']}"
        )
        for group, count in WORKERS.items():
            for _ in range(count):
                args = (group, ports["amqp"], self._workers_stop, self._reports)
                self._workers.append(self._start(worker.run, args))
        self._follow(board, 1.5)  # so that both groups are there before the first order
        for region in REGIONS:
            of_device = (region, ports["mqtt"], ORDERS_PER_SECOND, self._devices_stop, self._reports)
            self._devices.append(self._start(device.run, of_device))
        board.say(f"{len(REGIONS)} devices publish {ORDERS_PER_SECOND} orders a second each")
        self._follow(board, KILL_AFTER_S)
        self.broker.kill()
        board.say("kill -9 of the broker")
        self._follow(board, DOWN_S)
        took_s = self.broker.start()
        board.say(f"broker started again in {took_s:.1f} s on the same storage and ports")
        self._follow(board, GO_ON_S)
        self._devices_stop.set()
        board.say("devices stop; workers go on until everything is done")
        self._drain(board)
        self._workers_stop.set()

    def close(self) -> None:
        """End every process, whatever state it is in."""
        self._devices_stop.set()
        self._workers_stop.set()
        deadline = time.monotonic() + 3
        for process in self._devices + self._workers:
            while process.is_alive() and time.monotonic() < deadline:
                self._take_reports(0.05)  # a process ends only when what it reported was read
            if process.is_alive():
                process.kill()
            process.join()
        self.broker.stop()

    def _start(self, target: Callable[..., None], args: tuple[object, ...]) -> BaseProcess:
        process = self._context.Process(target=target, args=args, daemon=True)
        process.start()
        return process

    def _follow(self, board: Board, seconds: float) -> None:
        """Let things go on for a while, showing the counts."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._take_reports(min(left_s, 0.1))
            board.show()

    def _drain(self, board: Board) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while time.monotonic() < deadline:
            publishing = any(process.is_alive() for process in self._devices)
            self._follow(board, 0.3)
            if not publishing and not any(self.books.missing(group) for group in WORKERS):
                return

    def _take_reports(self, timeout_s: float) -> None:
        try:
            self.books.enter(self._reports.get(timeout=timeout_s))
            while True:
                self.books.enter(self._reports.get_nowait())
        except queue.Empty:
            pass


def main() -> int:
    """Run the demo; gives the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    print("SluiceMQ: MQTT devices -> a durable queue -> AMQP workers, about 30 seconds", flush=True)
    with tempfile.TemporaryDirectory(prefix="sluicemq-demo-", ignore_cleanup_errors=True) as directory:
        demo = Demo(Path(directory))
        board = Board(demo.books, WORKERS)
        try:
            with board:
                demo.run(board)
        except KeyboardInterrupt:
            print("interrupted")
            return 130
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
            demo.close()
        board.result()
    unconfirmed = demo.books.sent - len(demo.books.confirmed)
    if unconfirmed:
        print(f"{unconfirmed} orders were never confirmed")
    return 1 if unconfirmed or any(demo.books.missing(group) for group in WORKERS) else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
