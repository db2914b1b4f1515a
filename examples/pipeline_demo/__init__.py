"""The telemetry pipeline end to end, with its Spark driver killed in the middle: `make pipeline-demo`."""
