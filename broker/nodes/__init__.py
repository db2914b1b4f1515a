"""The nodes of a cluster: who is a member, by leases, and which shards each of them has."""
