"""What is done to a shard at somebody's request, in steps beside everything else."""
