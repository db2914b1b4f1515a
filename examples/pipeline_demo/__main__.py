"""`python -m sluicemq.examples.pipeline_demo`: devices, the telemetry pipeline on Spark, workers, a kill -9.

Exits with 0 if the alerts in the queue are exactly those that batch jobs compute from the stream and from the
archive, each once, and if every dead letter is accounted for.
"""

import argparse
import multiprocessing
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from examples.demo.broker_process import BrokerProcess
from examples.pipeline_demo import devices, plot, workers
from examples.pipeline_demo.board import Board
from examples.pipeline_demo.books import Books
from examples.pipeline_demo.compare import Verdict, compare, read_rows
from examples.pipeline_demo.driver import Driver
from examples.pipeline_demo.patience import Patience
from examples.pipeline_demo.plant import DELAY_S, DEVICES, MINUTES_MAX, SPEED, STEP_S, WINDOW_S, Plant

CORES = (2, 3)  # of the first driver, and of the one that takes over
KILL_AFTER_S = 30
GO_ON_S = 25  # when the next driver is at work
QUERIES = ("alerts", "archive", "rejected")
RECOMPUTED = {"stream": (), "archive": ("--archive", "{}/archive")}
RULE = ("--window", f"{WINDOW_S} seconds", "--delay", f"{DELAY_S} seconds")


class Demo:
    """The processes of one run; `close` ends all of them."""

    def __init__(self, directory: Path, board: Board, plant: Plant) -> None:
        self.books = Books()
        self.moments = plot.Moments(plant.begin)
        self._plant = plant
        self._board = board
        self._directory = directory
        self._broker = BrokerProcess(directory, Path(__file__).with_name("broker.yaml"))
        self._context = multiprocessing.get_context("spawn")
        self._reports = self._context.Queue()
        self._devices_stop = self._context.Event()
        self._workers_stop = self._context.Event()
        self._processes: list[BaseProcess] = []
        self._drivers: list[Driver] = []
        self._report: list[str] = []

    def run(self) -> None:
        """From the first reading to the last alert."""
        board = self._board
        took_s = self._broker.start()
        ports = self._broker.ports
        board.say(f"broker started in {took_s:.1f} s: MQTT on port {ports['mqtt']}, AMQP on {ports['amqp']}")
        self._start(workers.run, ports["amqp"], self._workers_stop, self._reports)
        driver = self._start_driver(CORES[0])
        self._start(devices.run, ports["mqtt"], self._plant, self._devices_stop, self._reports)
        board.say(f"{len(DEVICES)} devices publish; their time goes by {SPEED} times as fast")
        self._follow(driver, KILL_AFTER_S)
        self.moments.killed = time.time()
        board.say(f"kill -9 of the Spark driver and all it started ({driver.kill()} processes)")
        driver = self._start_driver(CORES[1])
        self.moments.back = time.time()
        self._follow(driver, GO_ON_S)
        self._devices_stop.set()
        board.say("devices stop; the pipeline reads the rest")
        self._catch_up(driver)
        driver.stop()
        self._drain()
        self._workers_stop.set()
        board.say(f"all read, all taken: {len(self.books.delivered)} deliveries of alerts")

    def judge(self) -> dict[str, Verdict]:
        """Compare the alerts with those recomputed from the stream and from the archive."""
        verdicts = {}
        for name in RECOMPUTED:
            verdicts[name] = compare(self.books.delivered, read_rows(self._directory / name))
        return verdicts

    def run_jobs(self) -> None:
        """The batch jobs, at the same time: recomputations and the report."""
        jobs = {}
        for name, source in RECOMPUTED.items():
            read = [word.format(self._directory) for word in source]
            jobs[name] = self._submit(
                2, name, "recompute", "--out", str(self._directory / name), *read, *RULE
            )
        jobs["report"] = self._submit(2, "report", "dead-letters", "--out", str(self._directory / "report"))
        self._board.say(f"batch jobs: {', '.join(jobs)}")
        patience = Patience("the batch jobs", self._board.say)
        while running := [name for name, job in jobs.items() if not job.poll()]:
            patience.look([jobs[name].effort() for name in running])
            self._board.show({"at work": ", ".join(running), "s": f"{patience.waited_s:.0f}"})
            time.sleep(0.2)
        self._board.say(f"batch jobs done in {patience.waited_s:.0f} s")
        self._report = [line for line in jobs["report"].text().splitlines() if line[:1] in "+|"]

    def dead_letters(self) -> list[str]:
        """Print the report; gives what in it is not as devices and workers say."""
        print("Dead letters", *self._report, sep="\n")
        found = {
            (row["queue"], row["reason"]): row["letters"] for row in read_rows(self._directory / "report")
        }
        wanted = {("telemetry-rejected", problem): n for problem, n in self.books.problems.items()}
        if rejected := len(self.books.rejected):
            wanted["alerts-dead", "rejected"] = rejected
        return [
            f"{' '.join(key)}: {found.get(key, 0)} dead letters, not {wanted.get(key, 0)}"
            for key in sorted(found.keys() | wanted.keys())
            if found.get(key) != wanted.get(key)
        ]

    def close(self) -> None:
        """End every process, whatever state it is in."""
        self._devices_stop.set()
        self._workers_stop.set()
        for driver in self._drivers:
            driver.kill()
        deadline = time.monotonic() + 3
        for process in self._processes:
            while process.is_alive() and time.monotonic() < deadline:
                self._take_reports(0.05)  # a process ends only when what it reported was read
            if process.is_alive():
                process.kill()
            process.join()
        self._broker.stop()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        process = self._context.Process(target=target, args=args, daemon=True)
        process.start()
        self._processes.append(process)

    def _submit(self, cores: int, name: str, *arguments: str) -> Driver:
        broker = ("--broker", f"amqp://127.0.0.1:{self._broker.ports['amqp']}/")
        log = self._directory / f"{name}.log"
        driver = Driver(cores, log, (*arguments, *broker))
        self._drivers.append(driver)
        return driver

    def _start_driver(self, cores: int) -> Driver:
        """Start the pipeline and wait until every query has done something."""
        patience = Patience("the first batch of every query", self._board.say)
        self._board.say(f"spark-submit --master local[{cores}] telemetry.py run {' '.join(QUERIES)}")
        directories = ["--checkpoints", str(self._directory / "checkpoints")]
        directories += ("--archive", str(self._directory / "archive"), "--archive-every", "5 seconds")
        driver = self._submit(cores, f"driver-{len(self._drivers)}", "run", *QUERIES, *directories, *RULE)
        while len(driver.progress()) < len(QUERIES):
            patience.look((driver.effort(), sorted(driver.progress())))
            self._follow(driver, 0.2)
        self._board.say(f"every query at work after {patience.waited_s:.0f} s")
        return driver

    def _follow(self, driver: Driver, seconds: float) -> None:
        """Let things go on for a while, showing the counts."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._take_reports(min(left_s, 0.2))
            self._show(driver)

    def _show(self, driver: Driver) -> None:
        books, alerts = self.books, driver.progress().get("alerts", {})
        self._board.show(
            {
                "published": f"{books.message_count:,}",
                "read": f"{alerts.get('end', {}).get('telemetry', 0):,}",
                "watermark": str(alerts.get("watermark", ""))[11:19],
                "alerts": f"{len(books.delivered):,}",
                "rejected": f"{len(books.rejected):,}",
            },
        )

    def _catch_up(self, driver: Driver) -> None:
        """Until the devices are done and every query has read everything, and the last window is closed."""
        patience = Patience("the queries to read everything and close the last window", self._board.say)
        while True:
            self._follow(driver, 0.5)
            batches = driver.progress()
            ends = {name: batch["end"]["telemetry"] for name, batch in batches.items()}
            if self.books.is_finished and all(end == self.books.message_count for end in ends.values()):
                end = self._plant.begin + timedelta(seconds=self.books.published[-1].step * STEP_S)
                if datetime.fromisoformat(batches["alerts"]["watermark"]) > end:
                    return
            patience.look((ends, self.books.message_count, batches["alerts"]["watermark"]))

    def _drain(self) -> None:
        """Until no alert has come for two seconds."""
        count, quiet_since = -1, time.monotonic()
        while time.monotonic() - quiet_since < 2:
            if len(self.books.delivered) != count:
                count, quiet_since = len(self.books.delivered), time.monotonic()
            self._take_reports(0.2)

    def _take_reports(self, timeout_s: float) -> None:
        try:
            self.books.enter(self._reports.get(timeout=timeout_s))
            while True:
                self.books.enter(self._reports.get_nowait())
        except queue.Empty:
            pass


def main() -> int:
    """Run the demo; gives the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--plot", type=Path, default=Path("build/pipeline-demo.png"), help="%(default)s")
    parser.add_argument("--seed", type=int, default=7, help="of what devices measure (%(default)s)")
    parser.add_argument("--keep", type=Path, help="a directory for everything, that is not removed")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    print("SluiceMQ: MQTT devices -> stream -> Spark -> queue -> AMQP workers, about 3 minutes", flush=True)
    if args.keep:
        args.keep.mkdir(parents=True)
        return _run(args.keep.resolve(), args)
    with tempfile.TemporaryDirectory(prefix="sluicemq-pipeline-", ignore_cleanup_errors=True) as directory:
        return _run(Path(directory), args)


def _run(directory: Path, args: argparse.Namespace) -> int:
    # so far back that no device is ahead of the broker's clock
    begin = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=MINUTES_MAX + 5)
    plant = Plant(begin, args.seed)
    board = Board()
    demo = Demo(directory, board, plant)
    try:
        with board:
            demo.run()
            demo.run_jobs()
        verdicts = demo.judge()
        wrong = demo.dead_letters()
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave processes behind
        demo.close()
    board.result(verdicts)
    for line in wrong:
        print(line)
    undecided = {name for verdict in verdicts.values() for name in verdict.undecided}
    if undecided:
        print(f"undecided, with readings later than the watermark allows: {', '.join(sorted(undecided))}")
    plot.draw(demo.books, demo.moments, undecided, args.plot)
    print(f"plot: {args.plot}")
    return 0 if not wrong and all(verdict.is_good and verdict.count for verdict in verdicts.values()) else 1


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
