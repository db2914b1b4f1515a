"""The nodes of a cluster over HTTP."""

from __future__ import annotations

from typing import Final, Protocol

from broker.admin.cluster import Cluster, ClusterView
from broker.http.endpoints import Endpoints
from queue_manager.errors import InvalidArgument

nodes: Final = Endpoints("nodes")


class OfCluster(Protocol):
    """A part of the HTTP interface of a node."""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster of the node, where it is of one."""


@nodes.endpoint("GET", "/nodes")
async def list_nodes(site: OfCluster) -> ClusterView:
    """List the nodes and the shards of the cluster, as this node knows them."""
    return _cluster(site).view()


@nodes.endpoint("POST", "/nodes/{name}/drain")
async def drain_node(site: OfCluster, name: str) -> None:
    """Have a node hand over its shards to others, one after the other, and take none."""
    _cluster(site).drain(name, is_wanted=True)


@nodes.endpoint("POST", "/nodes/{name}/resume")
async def resume_node(site: OfCluster, name: str) -> None:
    """Have a node take shards again, after `drain`."""
    _cluster(site).drain(name, is_wanted=False)


@nodes.endpoint("POST", "/nodes/balance")
async def balance_nodes(site: OfCluster) -> None:
    """Have nodes with more shards than others hand some over."""
    _cluster(site).balance()


def _cluster(site: OfCluster) -> Cluster:
    cluster = site.cluster
    if cluster is None:
        raise InvalidArgument("this broker is no node of a cluster (cluster.listen)")
    return cluster
