"""Whole pipelines: programs for `spark-submit`, made of DataFrames only, so that no Python runs per row."""
