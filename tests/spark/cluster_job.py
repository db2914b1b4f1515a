"""A job on several executors in which something fails behind a shuffle, where rows change their order.

    python -m tests.spark.cluster_job MASTER QUEUE PORT ROWS MARKS MODE

MODE is `task`: one task fails in the middle; `executor`: an executor is killed in the middle, and with it
what it kept of the shuffle; `speculation`: one task is slow, and another attempt at it begins; `copy`: the
executors read the stream `QUEUE-stream` into the queue `QUEUE-work`, and claim what is in that. MARKS is a
directory where files tell what happened.
"""

import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_bridge
from tests.spark.conftest import CONF

master, queue, port, rows, marks, mode = sys.argv[1:]
WAIT_MAX_S = 60
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
}


def parent(pid):
    """The process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def once(name):
    """Whether nobody came here before."""
    try:
        os.close(os.open(f"{marks}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def wait_for_another_attempt():
    """Be slow for as long as nobody else tries what this task does, and a little slower then."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not list(Path(marks).glob("attempt-0-1-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.05)


def disturb(text):
    """Give the text back, or do what the mode says."""
    if int(text) % 50 != 49:
        return text
    context = TaskContext.get()
    once(f"attempt-{context.partitionId()}-{context.attemptNumber()}-{context.taskAttemptId()}")
    if mode == "speculation":
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            wait_for_another_attempt()
    elif once(mode):
        if mode == "task":
            raise RuntimeError("the first attempt fails in the middle")
        os.kill(parent(parent(os.getpid())), signal.SIGKILL)
    return text


def mark_executor(payload):
    """Note which executor reads, and give back what it reads."""
    once(f"executor-{parent(parent(os.getpid()))}")
    return payload


def copy(spark):
    """Read a stream in batch and a work queue streaming."""
    stream = {"queue": f"{queue}-stream", "port": port, "offsetsPerPartition": "100"}
    read = spark.read.format("sluice").options(**stream).load()
    read = read.select(F.udf(mark_executor, "binary")("payload").alias("payload"))
    into = {"queue": f"{queue}-work", "port": port, "wait": "visible"}
    read.write.format("sluice").options(**into).mode("append").save()
    work = {"queue": f"{queue}-work", "port": port, "claim": "true", "maxOffsetsPerTrigger": "1000"}
    claimed = spark.readStream.format("sluice").options(**work, offsetsPerPartition="200").load()
    query = (
        claimed.select("payload")
        .writeStream.format("sluice")
        .options(queue=queue, port=port, checkpointLocation=f"{marks}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def main():
    builder = SparkSession.builder.master(master)
    for name, value in {**CONF, **(SPECULATION if mode == "speculation" else {})}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    builder = builder.config("spark.executor.memory", "512m")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    spark = builder.getOrCreate()
    spark_bridge.register(spark)
    if mode == "copy":
        copy(spark)
        return
    frame = spark.range(0, int(rows), 1, 4).select(F.col("id").cast("string").alias("payload")).repartition(3)
    frame = frame.select(F.udf(disturb, "string")("payload").alias("payload"))
    into = {"queue": queue, "port": port, "confirmWindow": "20"}
    frame.write.format("sluice").options(**into).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
