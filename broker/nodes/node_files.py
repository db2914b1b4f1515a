"""What a node reads at its start: the secret of the cluster, and its certificates."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from broker.workers.node_side import Epoch, NodeDeadline, NodeSide, Peers
from config import limits
from config.cluster_settings import ClusterSettings, NodeTlsSettings
from config.settings_loader import ConfigError

_SECRET_BYTES_MIN: Final = 16


def node_side(cluster: ClusterSettings) -> NodeSide:
    """Return what the workers of this node have in common. Raises ConfigError."""
    host, port = cluster.address
    tls = cluster.tls
    return NodeSide(
        cluster.node_name,
        host,
        port,
        Epoch(0),
        _secret(cluster.secret_file),
        NodeDeadline(),
        Peers(),
        None if tls is None else _context(tls, ssl.PROTOCOL_TLS_SERVER),
        None if tls is None else _context(tls, ssl.PROTOCOL_TLS_CLIENT),
        cluster.lease_ms / 1000 / limits.LEASE_BEATS,
    )


def _secret(path: str) -> bytes:
    """Return the secret; where certificates are to do without one, it is empty."""
    if not path:
        return b""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError([f"cluster.secret_file: {path}: {error.strerror}"]) from error
    if len(secret) < _SECRET_BYTES_MIN:
        raise ConfigError([f"cluster.secret_file: {path} has less than {_SECRET_BYTES_MIN} bytes"])
    return secret


def _context(tls: NodeTlsSettings, side: int) -> ssl.SSLContext:
    """Return a context that shows this node's certificate, and wants one of the other end."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        context.load_verify_locations(tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([f"cluster.tls: {error}"]) from error
    return context
