"""A job on two executors whose task fails once behind a shuffle, where its rows come in another order again.

python -m tests.spark.cluster_job QUEUE PORT ROWS MARK
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import spark_bridge
from tests.spark.conftest import CONF

queue, port, rows, mark = sys.argv[1:]


def fail_once(text: str) -> str:
    """Raise in the middle of whichever task comes here first."""
    if int(text) % 50 == 49:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return text
        raise RuntimeError("the first attempt fails in the middle")
    return text


def main() -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    spark = builder.getOrCreate()
    spark_bridge.register(spark)
    frame = spark.range(0, int(rows), 1, 4).select(F.col("id").cast("string").alias("payload")).repartition(3)
    frame = frame.select(F.udf(fail_once, "string")("payload").alias("payload"))
    frame.write.format("sluice").options(queue=queue, port=port).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
