"""Staged epochs: what a job that retries publishes, unseen until one call makes exactly one attempt of each
part of it visible.
"""
